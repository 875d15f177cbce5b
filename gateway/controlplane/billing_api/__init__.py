"""Prices, journals and dead letters over HTTP; the rules are in the billing package."""
