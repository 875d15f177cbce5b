"""Every setting of every process: options first, then ``FOREBAY_*`` variables, then defaults.

Only the composition root (``gateway/cli``, ``gateway/up``) reads this; everything below is handed
plain configuration records.
"""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, AliasChoices, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

MIB = 1024 * 1024
_PREFIX = "FOREBAY_"
_DATABASE_VARIABLES = (f"{_PREFIX}DATABASE_URL", "DATABASE_URL")  # the first that is set wins
_POSTGRES_SCHEMES = ("postgres", "postgresql")
_REDIS_SCHEMES = ("redis", "rediss", "unix", "valkey", "valkeys")
_EMAIL = re.compile(r"[^\s@]{1,64}@[^\s@]{1,255}")  # what the sign-in page's field takes, or more
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")


class SettingsError(ValueError):
    """A setting has a value that cannot work; the text names the variable and says why."""


def _default_state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "forebay"


def _absolute(path: Path) -> Path:
    if path == Path():  # an empty text: nobody means the directory that happens to be current
        raise ValueError("must name a directory")
    return path.expanduser().absolute()


def _database_url(url: str) -> str:
    scheme, separator, rest = url.strip().partition("://")
    if not separator or scheme.lower().partition("+")[0] not in _POSTGRES_SCHEMES:
        raise ValueError("must begin with postgresql:// (PostgreSQL is the only database)")
    return f"postgresql://{rest}"


def _redis_url(url: str) -> str:
    scheme, separator, rest = url.strip().partition("://")
    if not separator or scheme.lower() not in _REDIS_SCHEMES:
        raise ValueError("must begin with redis://, rediss:// or unix://")
    return f"{scheme.lower().replace('valkey', 'redis')}://{rest}"


def _http_url(url: str) -> str:
    parts = urlsplit(url.strip())
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
        raise ValueError("must be an address such as http://127.0.0.1:8000")
    if parts.query or parts.fragment or parts.username:
        raise ValueError("must not hold a query, a fragment or credentials")
    return url.strip().rstrip("/")


def _email(address: str) -> str:
    if not _EMAIL.fullmatch(address.strip()):
        raise ValueError("must be an e-mail address such as admin@example.com")
    return address.strip()


def _webhook_url(url: str) -> str:
    parts = urlsplit(url.strip())
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be an address such as https://alerts.example.com/hook")
    return url.strip()


def _engine_url(url: str) -> str:
    """Cut a trailing /v1: engines' own addresses (/health, /metrics) lie beside it."""
    return _http_url(url).removesuffix("/v1").rstrip("/")


def _host(host: str) -> str:
    host = host.strip().removeprefix("[").removesuffix("]")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        if not _HOST_NAME.fullmatch(host):
            raise ValueError("must be an IP address or a host name") from None
        return host


def _log_target(target: str) -> str:
    return target if target == "stdout" else str(_absolute(Path(target)))


Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class Settings(BaseSettings):
    """The settings, checked. Spans are in the unit that their name ends with; sizes are bytes."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        populate_by_name=True,
        frozen=True,
        validate_default=True,
    )

    state_dir: Annotated[Path, AfterValidator(_absolute)] = Field(
        default_factory=_default_state_dir
    )
    host: Annotated[str, AfterValidator(_host)] = "127.0.0.1"
    port: Port = 8080  # 0: any free one
    admin_port: Port = 8081  # 0: any free one
    metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = None  # None: no metrics
    workers: Annotated[int, Field(ge=1, le=512)] | None = None  # None: one a core
    request_log: Annotated[str, AfterValidator(_log_target)] | None = None  # None: no request log

    database_url: Annotated[str, AfterValidator(_database_url)] | None = Field(
        default=None,
        validation_alias=AliasChoices(*_DATABASE_VARIABLES),
        repr=False,
    )
    redis_url: Annotated[str, AfterValidator(_redis_url)] | None = Field(default=None, repr=False)
    vllm_url: Annotated[str, AfterValidator(_engine_url)] | None = None
    vllm_model: str | None = None  # None: what the engine's /v1/models names first
    vllm_api_key: SecretStr | None = None
    vllm_agent_url: Annotated[str, AfterValidator(_http_url)] | None = None
    pg_bin: Annotated[Path, AfterValidator(_absolute)] | None = None
    valkey_bin: Annotated[Path, AfterValidator(_absolute)] | None = None

    public_url: Annotated[str, AfterValidator(_http_url)] | None = None  # None: host and port
    control_url: Annotated[str, AfterValidator(_http_url)] | None = None
    internal_token: SecretStr | None = None
    admin_token: SecretStr | None = None
    admin_email: Annotated[str, AfterValidator(_email)] = "admin@forebay.local"

    max_body_bytes: Annotated[int, Field(ge=1024)] = 32 * MIB
    max_reply_bytes: Annotated[int, Field(ge=1024)] = 256 * MIB
    max_frame_bytes: Annotated[int, Field(ge=1024)] = 16 * MIB
    connect_timeout_seconds: Seconds = 5.0
    first_token_timeout_seconds: Seconds = 300.0
    idle_timeout_seconds: Seconds = 120.0
    reply_timeout_seconds: Seconds = 900.0
    queue_keepalive_seconds: Seconds = 10.0
    probe_seconds: Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)] = 1.0
    drain_seconds: Seconds = 30.0
    idempotency_retention_seconds: Annotated[
        float, Field(gt=0, le=604_800, allow_inf_nan=False)
    ] = 86_400.0
    idempotency_max_reply_bytes: Annotated[int, Field(ge=1024)] = 8 * MIB  # a larger one: not kept
    idempotency_total_bytes: Annotated[int, Field(ge=1024)] = 64 * MIB  # of a worker
    feedback_comments: bool = False  # text of clients is kept
    journal_fsync_ms: Annotated[int, Field(ge=0, le=10_000)] = 10  # 0: before every answer
    ledger_post_seconds: Seconds = 60.0

    alarm_webhook_url: Annotated[str, AfterValidator(_webhook_url)] | None = Field(
        default=None, repr=False
    )
    drift_percent: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 1.0
    drift_min_tokens: Annotated[int, Field(ge=0)] = 1000
    drift_alarm_seconds: Seconds = 600.0

    @classmethod
    def load(cls, **options: Any) -> Self:
        """Read the environment; ``options`` that are not None win over it.

        Raises :class:`SettingsError` for the first value that cannot work.
        """
        given = {name: value for name, value in options.items() if value is not None}
        try:
            settings = cls(**given)
        except ValidationError as error:
            raise SettingsError(_sentence(error, given)) from None
        if settings.port and settings.port == settings.admin_port:
            raise SettingsError(
                f"The port and the admin port are both {settings.port}; they must differ."
            )
        if settings.metrics_port in {settings.port, settings.admin_port}:
            raise SettingsError(
                f"FOREBAY_METRICS_PORT ({settings.metrics_port}) is another part's port; it must"
                " be one of its own."
            )
        return settings

    @property
    def journal_dir(self) -> Path:
        """Return where the data plane's journals lie."""
        return self.state_dir / "journal"


def name_database_variable() -> str:
    """Return the variable that the database's address is read from: what a message should name."""
    given = {name.upper() for name, value in os.environ.items() if value}
    return next((name for name in _DATABASE_VARIABLES if name in given), _DATABASE_VARIABLES[-1])


def _sentence(error: ValidationError, given: dict[str, Any]) -> str:
    """Name the option or variable, never its value where that may hold a password."""
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    field = name.lower().removeprefix(_PREFIX.lower())
    variable = name if name.isupper() else f"{_PREFIX}{name.upper()}"
    if variable in _DATABASE_VARIABLES:
        variable = name_database_variable()
    label = f"--{field.replace('_', '-')}" if field in given else variable
    reason = first["msg"].removeprefix("Value error, ")
    reason = reason[:1].lower() + reason[1:]
    value = "" if field.endswith(("_url", "_token", "_key")) else f" ({first['input']!r})"
    return f"{label}{value} cannot be used: {reason}."
