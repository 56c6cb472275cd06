"""The commands of the command line, one in each file; a slice has its own in its folder ``commands/``."""
