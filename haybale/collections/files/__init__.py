"""Readers of single files: each turns a file of one format into documents with pages, headings and metadata."""
