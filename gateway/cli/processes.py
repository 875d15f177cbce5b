"""The commands that are one process each: what ``forebay up`` supervises and containers run."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from pydantic import SecretStr

from gateway.cli.errors import CliError
from gateway.cli.locate import get_database_url
from gateway.cli.options import StateDirOption
from gateway.settings import Settings

HostOption = Annotated[str | None, typer.Option("--host", help="Address to listen on.")]
PortOption = Annotated[str | None, typer.Option("--port", metavar="PORT", help="Public port.")]
AdminPortOption = Annotated[
    str | None, typer.Option("--admin-port", metavar="PORT", help="Port of the admin page.")
]
WorkersOption = Annotated[
    str | None, typer.Option("--workers", metavar="N", help="Processes. Default: one a core.")
]


def migrate(state_dir: StateDirOption = None) -> None:
    """Bring the database schema to this version."""
    from gateway.up.errors import StartError
    from gateway.up.migrate_database import migrate_database

    url = get_database_url(Settings.load(state_dir=state_dir))
    try:
        migrate_database(url)
    except StartError as error:
        raise CliError(str(error)) from error
    print("The database schema is up to date.")


def worker(state_dir: StateDirOption = None) -> None:
    """Run the billing worker: journals to PostgreSQL, exactly once."""
    with _importing():
        from billing.worker import WorkerConfig, run

    settings = Settings.load(state_dir=state_dir)
    _log_to_stderr()
    config = WorkerConfig(
        database_url=get_database_url(settings),
        journal_dir=settings.journal_dir,
        ledger_post_seconds=settings.ledger_post_seconds,
        state_dir=settings.state_dir,
        redis_url=settings.redis_url,
    )
    raise typer.Exit(run(config))


def controlplane(
    state_dir: StateDirOption = None, host: HostOption = None, admin_port: AdminPortOption = None
) -> None:
    """Run the control plane: control API and admin page."""
    with _importing():
        from billing.engine_counters.drift import DriftRule
        from gateway.controlplane.config import ControlPlaneConfig, ControlPlaneConfigError
        from gateway.controlplane.serve import run
        from gateway.up.ports import url_of

    settings = Settings.load(state_dir=state_dir, host=host, admin_port=admin_port)
    _log_to_stderr()
    try:
        config = ControlPlaneConfig(
            database_url=get_database_url(settings),
            admin_token=_reveal(settings.admin_token) or "",
            internal_token=_reveal(settings.internal_token),
            redis_url=settings.redis_url,
            state_dir=settings.state_dir,
            host=settings.host,
            port=settings.admin_port,
            public_base_url=settings.public_url or url_of(settings.host, settings.port),
            alarm_webhook_url=settings.alarm_webhook_url,
            drift_rule=DriftRule(
                share=settings.drift_percent / 100, min_tokens=settings.drift_min_tokens
            ),
            drift_alarm_seconds=settings.drift_alarm_seconds,
        )
    except ControlPlaneConfigError as error:
        raise CliError(f"{error} (FOREBAY_ADMIN_TOKEN, FOREBAY_INTERNAL_TOKEN)") from None
    raise typer.Exit(run(config))


def dataplane(
    state_dir: StateDirOption = None,
    host: HostOption = None,
    port: PortOption = None,
    workers: WorkersOption = None,
) -> None:
    """Run the data plane: the public API."""
    with _importing():
        from billing.budgets.spend_feed import FILE_NAME
        from gateway.dataplane.config import DataPlaneConfig
        from gateway.dataplane.serve import run

    settings = Settings.load(state_dir=state_dir, host=host, port=port, workers=workers)
    _log_to_stderr()
    raise typer.Exit(
        run(
            DataPlaneConfig(
                host=settings.host,
                port=settings.port,
                metrics_port=settings.metrics_port,
                request_log=settings.request_log,
                workers=settings.workers or os.cpu_count() or 1,
                journal_dir=settings.journal_dir,
                snapshot_path=settings.state_dir / "snapshot" / "snapshot.json",
                spend_path=settings.state_dir / FILE_NAME,
                redis_url=settings.redis_url,
                control_url=settings.control_url,
                internal_token=_reveal(settings.internal_token),
                max_body_bytes=settings.max_body_bytes,
                max_reply_bytes=settings.max_reply_bytes,
                max_frame_bytes=settings.max_frame_bytes,
                connect_timeout_seconds=settings.connect_timeout_seconds,
                first_token_timeout_seconds=settings.first_token_timeout_seconds,
                idle_timeout_seconds=settings.idle_timeout_seconds,
                reply_timeout_seconds=settings.reply_timeout_seconds,
                queue_keepalive_seconds=settings.queue_keepalive_seconds,
                probe_seconds=settings.probe_seconds,
                drain_seconds=settings.drain_seconds,
                journal_fsync_ms=settings.journal_fsync_ms,
                keeps_feedback_comments=settings.feedback_comments,
                idempotency_retention_seconds=settings.idempotency_retention_seconds,
                idempotency_max_reply_bytes=settings.idempotency_max_reply_bytes,
                idempotency_total_bytes=settings.idempotency_total_bytes,
            )
        )
    )


@contextmanager
def _importing() -> Iterator[None]:
    """Hold the garbage collector back: a sixth of a start went to looking at what stays anyway."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _reveal(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


def _log_to_stderr() -> None:
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line a probe
