"""Budgets over HTTP, and their alerts."""
