"""What a control-plane process is told at start; it reads no settings itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from billing.engine_counters.drift import DriftRule

MIN_TOKEN_CHARACTERS = 16


class ControlPlaneConfigError(ValueError):
    """The process must not start with this configuration; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneConfig:
    """Configuration of one control-plane process.

    ``admin_token`` opens everything, so there is no process without one. ``internal_token`` opens
    receipts alone (the data plane relays them); None: nobody may use that way. ``redis_url`` and
    ``state_dir`` say where Snapshots are published; None leaves that place out.
    ``alarm_webhook_url`` is told when token counts drift from the engines' own by more than
    ``drift_rule`` for so long, and what shadow evaluation finds wrong. ``public_base_url`` is the data plane's address as callers know it, for the pages.

    Raises :class:`ControlPlaneConfigError`.
    """

    database_url: str = field(repr=False)
    admin_token: str = field(repr=False)
    internal_token: str | None = field(default=None, repr=False)
    redis_url: str | None = field(default=None, repr=False)
    state_dir: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8081
    public_base_url: str = "http://127.0.0.1:8080"
    is_secure_cookie: bool = False
    session_seconds: int = 24 * 3600
    publish_poll_ms: int = 500
    alert_poll_ms: int = 2000
    credit_poll_ms: int = 500
    drift_poll_ms: int = 60_000
    drift_rule: DriftRule = field(default_factory=DriftRule)
    drift_alarm_seconds: float = 600.0
    shadow_poll_ms: int = 60_000
    alarm_webhook_url: str | None = field(default=None, repr=False)
    max_body_bytes: int = 1024 * 1024

    def __post_init__(self) -> None:
        _check_token("The admin token", self.admin_token)
        if self.internal_token is not None:
            _check_token("The internal token", self.internal_token)
            if self.internal_token == self.admin_token:
                raise ControlPlaneConfigError(
                    "The internal token must differ from the admin token: data planes know it."
                )


def _check_token(what: str, token: str) -> None:
    if len(token.strip()) < MIN_TOKEN_CHARACTERS:
        raise ControlPlaneConfigError(
            f"{what} is missing or shorter than {MIN_TOKEN_CHARACTERS} characters;"
            " the control plane does not start without a real one."
        )
