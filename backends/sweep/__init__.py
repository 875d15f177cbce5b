"""Drives an engine at rising load and measures what it can carry."""
