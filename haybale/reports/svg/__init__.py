"""Drawings as inline SVG: pure functions from numbers to markup, coloured by the page's style sheet."""
