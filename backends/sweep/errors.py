"""What ends a sweep, or keeps it from beginning. Their text is the sentence that a person reads."""

from __future__ import annotations


class SweepError(Exception):
    """The target cannot be measured as it was asked for."""
