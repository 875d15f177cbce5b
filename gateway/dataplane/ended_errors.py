"""What ends a request that is none of its engine's doing; raised where an engine is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.errors import BackendError

if TYPE_CHECKING:
    from gateway.snapshot.model import Budget


class ClientGoneError(BackendError):
    """The client left; the engine's work for it is ended."""


class BudgetEndedError(BackendError):
    """There is no money for more of this stream."""

    def __init__(self, budget: Budget) -> None:
        super().__init__("There is no money for more of this stream.")
        self.budget = budget


class LowConfidenceError(BackendError):
    """The tier's answer is given up before any of it was sent: one above is to answer."""


class GatewayStoppedError(BackendError):
    """We are stopping and cannot wait for the engine any longer."""
