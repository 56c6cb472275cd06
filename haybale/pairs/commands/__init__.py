"""Commands of this slice, one a file."""
