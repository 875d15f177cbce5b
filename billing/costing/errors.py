"""What an estimate or a report cannot be made from. The text is the sentence that the person reads.

CostingError
└── ModelConfigError   a ``config.json`` that describes no model we can count
"""

from __future__ import annotations


class CostingError(ValueError):
    """A figure, a file or a wish makes no sense; the message says which and why."""


class ModelConfigError(CostingError):
    """The ``config.json`` lacks what is needed, or describes a model that cannot be counted."""
