"""Training pairs of paragraphs from judgements, and encoders fine-tuned on them for PARM.

This file imports nothing, so that the command's help is fast: import from the modules, or from haybale.
"""
