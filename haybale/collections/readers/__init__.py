"""Readers of collections; each file reads one layout or one source."""
