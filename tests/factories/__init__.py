"""Makers of test data, one file per aggregate."""
