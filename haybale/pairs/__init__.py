"""Pairs of paragraphs read together: pair encoders, stored interactions, BERT-PLI, and the rankers that use them.

Nothing is imported here, so that the help of the command costs nothing: import from the modules, or from haybale.
"""
