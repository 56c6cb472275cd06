"""Shared code of the tests: small collections, reference implementations, and doubles of missing packages."""
