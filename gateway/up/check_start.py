"""Refuse what cannot work before a single process runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gateway.settings import Settings, name_database_variable
from gateway.up.background import run_in_background
from gateway.up.errors import DatabaseStartError
from gateway.up.parts import check_programs
from gateway.up.ports import reserve_port
from gateway.up.progress import Progress
from gateway.up.state_directory import StateDirectory
from gateway.up.summary import check_ready_file

# A name server may keep silent, and a host's addresses are tried one after the other.
_DATABASE_SECONDS = 15.0


def check_start(
    settings: Settings,
    state: StateDirectory,
    ready_file: Path | None,
    progress: Progress,
    pause: Callable[[], None],
) -> tuple[int, int]:
    """Return the public port and the admin port; nothing has been started or changed then.

    Raises :class:`gateway.up.errors.UpError`, and what ``pause`` raises.
    """
    port = reserve_port(settings.host, settings.port, "--port")
    admin_port = reserve_port(settings.host, settings.admin_port, "--admin-port")
    state.check_space(is_database_embedded=settings.database_url is None)
    if ready_file is not None:
        check_ready_file(ready_file)
    check_programs(settings)
    if settings.database_url is not None:
        variable = name_database_variable()
        with progress.step(f"the database that {variable} names"):
            _check_database(settings.database_url, variable, pause)
    return port, admin_port


def _check_database(database_url: str, variable: str, pause: Callable[[], None]) -> None:
    def work() -> None:
        from gateway.up.check_database import check_database  # noqa: PLC0415 - slow to import

        check_database(database_url, variable)

    try:
        run_in_background(work, pause, _DATABASE_SECONDS)
    except TimeoutError:
        raise DatabaseStartError(
            f"The database that {variable} names did not answer within {_DATABASE_SECONDS:.0f} s."
        ) from None
