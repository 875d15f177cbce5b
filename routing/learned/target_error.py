"""What a calibration refuses with; apart from it so that naming it needs no numpy."""

from __future__ import annotations


class TargetError(ValueError):
    """No threshold meets the target, or the target is not one."""
