"""The commands of this package, one in each file."""
