"""How a collection is read: a layout, a source or frames; one reader a file."""
