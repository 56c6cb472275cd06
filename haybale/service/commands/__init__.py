"""Commands of this slice, one in each file."""
