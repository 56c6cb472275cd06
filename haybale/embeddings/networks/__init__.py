"""Encoders' networks, which need torch to be imported."""
