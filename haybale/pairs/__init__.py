"""Models of paragraph pairs: pair encoders, stored interactions, BERT-PLI, and the rankers that use them.

This file imports nothing, so that the command line starts fast: import from the modules, or from haybale.
"""
