"""Figures of reports as people read them: rounded, never for a further computation. Pure."""

from __future__ import annotations

from decimal import Decimal


def show_money(amount: Decimal | None) -> str | None:
    """Return an amount rounded to cents; None where there is none."""
    return None if amount is None else format(amount, ".2f")


def show_percent(share: Decimal | None) -> str | None:
    """Return a share of 1 as percent with one decimal."""
    return None if share is None else format(share * 100, ".1f")
