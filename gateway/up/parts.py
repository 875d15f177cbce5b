"""Put the parts together from the settings: commands, environments, readiness."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import gateway
from gateway.settings import Settings
from gateway.up.engine_choice import LOCAL_HOST, EngineChoice
from gateway.up.part import ServicePart, answers_http, is_locked
from gateway.up.ports import url_of
from gateway.up.postgres import EmbeddedPostgres
from gateway.up.postgres_programs import find_server_user, get_postgres_programs
from gateway.up.progress import Progress
from gateway.up.state_directory import InternalSecrets, StateDirectory
from gateway.up.valkey import EmbeddedValkey, find_valkey_program

# Where `python -m gateway.cli.main` finds our packages, installed or in a checkout.
_PACKAGES = Path(gateway.__file__).resolve().parent.parent
_DATABASE = "forebay"
_WORKER_LOCK = "worker.lock"  # in the journal directory; billing.worker holds it while it works
# Beyond a part's own drain, before its leash kills it.
_MARGIN_SECONDS = 5.0
_WORKER_GRACE_SECONDS = 45.0
_CONTROL_GRACE_SECONDS = 15.0
_ENGINE_GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class Addresses:
    """Where everything listens or is reached."""

    base_url: str  # ends in /v1
    admin_url: str
    database_url: str
    redis_url: str | None


def embedded_postgres(settings: Settings, state: StateDirectory) -> EmbeddedPostgres | None:
    """Return the embedded database; None when the settings name one."""
    if settings.database_url is not None:
        return None
    return EmbeddedPostgres(
        state.postgres,
        program_directory=settings.pg_bin,
        log_path=state.log_of("postgres"),
        database=_DATABASE,
    )


def embedded_valkey(settings: Settings, state: StateDirectory) -> EmbeddedValkey | None:
    """Return the embedded Valkey; None when the settings name a Redis or there is no program."""
    if settings.redis_url is not None:
        return None
    program = find_valkey_program(settings.valkey_bin)
    if program is None:
        return None
    return EmbeddedValkey(state.valkey, program=program, log_path=state.log_of("valkey"))


def check_programs(settings: Settings) -> None:
    """See that the embedded servers' programs are there and run.

    Raises :class:`gateway.up.errors.StartError`.
    """
    if settings.database_url is None:
        get_postgres_programs(settings.pg_bin, find_server_user())
    if settings.redis_url is None:
        find_valkey_program(settings.valkey_bin)


class ServiceParts:
    """Makes the parts that are commands of our own."""

    def __init__(
        self,
        settings: Settings,
        state: StateDirectory,
        addresses: Addresses,
        internal: InternalSecrets,
        workers: int,
    ) -> None:
        self._settings = settings
        self._state = state
        self._addresses = addresses
        self._env = _environment(settings, state, addresses, internal, workers)

    def engine(self, choice: EngineChoice) -> ServicePart | None:
        """Return the local engine; None when it is somebody else's."""
        if choice.local_port is None:
            return None
        port = str(choice.local_port)
        probe = partial(answers_http, f"{choice.base_url}/health")
        arguments = ("engine", "local", "--host", LOCAL_HOST, "--port", port)
        return self._part("local engine", "engine", arguments, probe, _ENGINE_GRACE_SECONDS)

    def worker(self) -> ServicePart:
        """Return the billing worker."""
        probe = partial(is_locked, self._state.journal / _WORKER_LOCK)
        return self._part("billing worker", "worker", ("worker",), probe, _WORKER_GRACE_SECONDS)

    def controlplane(self) -> ServicePart:
        """Return the control plane with the admin page."""
        probe = partial(answers_http, f"{self._addresses.admin_url}/api/v1/ready")
        arguments = ("controlplane",)
        return self._part("control plane", "controlplane", arguments, probe, _CONTROL_GRACE_SECONDS)

    def dataplane(self) -> ServicePart:
        """Return the data plane."""
        probe = partial(answers_http, self._addresses.base_url.removesuffix("/v1") + "/ready")
        grace = self._settings.drain_seconds + _MARGIN_SECONDS
        return self._part("data plane", "dataplane", ("dataplane",), probe, grace)

    def _part(
        self,
        name: str,
        log: str,
        arguments: tuple[str, ...],
        probe: partial[bool],
        grace_seconds: float,
    ) -> ServicePart:
        return ServicePart(
            name=name,
            command=(sys.executable, "-m", "gateway.cli.main", *arguments),
            log_path=self._state.log_of(log),
            env=self._env,
            cwd=_PACKAGES,
            is_ready=probe,
            grace_seconds=grace_seconds,
        )


def addresses_of(
    settings: Settings, port: int, admin_port: int, database_url: str, redis_url: str | None
) -> Addresses:
    """Return the addresses for the ports that were really chosen."""
    return Addresses(
        base_url=f"{url_of(settings.host, port)}/v1",
        admin_url=url_of(settings.host, admin_port),
        database_url=database_url,
        redis_url=redis_url,
    )


def _environment(
    settings: Settings,
    state: StateDirectory,
    addresses: Addresses,
    internal: InternalSecrets,
    workers: int,
) -> dict[str, str]:
    """Return the children's environment: ours, with every decision that we took written out.

    Only the same account can read it, as it can read ``secrets.json``.
    """
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    env.pop("DATABASE_URL", None)
    env.update(
        FOREBAY_STATE_DIR=str(state.root),
        FOREBAY_HOST=settings.host,
        FOREBAY_PORT=addresses.base_url.removesuffix("/v1").rpartition(":")[2],
        FOREBAY_ADMIN_PORT=addresses.admin_url.rpartition(":")[2],
        FOREBAY_WORKERS=str(workers),
        FOREBAY_DATABASE_URL=addresses.database_url,
        FOREBAY_CONTROL_URL=addresses.admin_url,
        FOREBAY_INTERNAL_TOKEN=internal.internal_token,
        FOREBAY_ADMIN_TOKEN=internal.admin_token,
        FOREBAY_DRAIN_SECONDS=str(settings.drain_seconds),
    )
    if addresses.redis_url is not None:
        env["FOREBAY_REDIS_URL"] = addresses.redis_url
    if settings.request_log is not None:  # they run elsewhere: a relative path is ours
        env["FOREBAY_REQUEST_LOG"] = settings.request_log
    return env


def count_workers(wanted: int | None, progress: Progress, *, has_redis: bool) -> int:
    """Return how many data-plane workers to run: as wanted, else one a core."""
    if not has_redis:
        progress.warn("No Valkey for this platform: one data-plane worker, counters in its memory.")
        return 1
    if wanted is not None:
        return wanted
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
