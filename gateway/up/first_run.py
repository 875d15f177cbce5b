"""The secret and the password that are shown once, kept until they have been shown.

``first-run.json`` is written before the organization, the ApiKey and the Member are committed, and
removed once the summary and the ready file are out. Whatever is killed in between, the next start
finds the file and shows them again; what was never committed is offered to the database anew.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, field

from gateway.up.errors import StateDirectoryError
from gateway.up.state_directory import StateDirectory

_SECRET_BYTES = 32  # 256 bits: 43 URL-safe characters
_PASSWORD_BYTES = 15  # 20 characters


@dataclass(frozen=True)
class FirstRunSecrets:
    """What the first start offers to the database."""

    api_key_secret: str = field(repr=False)
    admin_password: str = field(repr=False)


@dataclass(frozen=True)
class ShownOnce:
    """What of it to show: None where something set earlier still holds."""

    secret: str | None = field(default=None, repr=False)
    admin_password: str | None = field(default=None, repr=False)


def offer_first_run_secrets(state: StateDirectory) -> FirstRunSecrets:
    """Return the secrets that an interrupted start left, or fresh ones; they are on disk then.

    Raises :class:`StateDirectoryError`.
    """
    found = state.find_json(state.first_run_file)
    if found is not None:
        try:
            return FirstRunSecrets(str(found["api_key_secret"]), str(found["admin_password"]))
        except KeyError as error:
            raise StateDirectoryError(f"{state.first_run_file} lacks {error}; remove it.") from None
    made = FirstRunSecrets(
        "fb-" + secrets.token_urlsafe(_SECRET_BYTES), secrets.token_urlsafe(_PASSWORD_BYTES)
    )
    state.write_json(state.first_run_file, asdict(made))
    return made


def forget_first_run_secrets(state: StateDirectory) -> None:
    """Remove them from the disk; idempotent."""
    state.first_run_file.unlink(missing_ok=True)
