"""Readers of collections, one layout or source a file."""
