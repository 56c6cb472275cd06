"""Training pairs of paragraphs from judgements, and encoders fine-tuned on them for PARM.

Nothing is imported here, so that the command's help costs nothing: import from the modules, or from haybale.
"""
