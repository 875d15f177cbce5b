"""``forebay up``: the story of a start, a life and a stop, on one page."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.settings import Settings
from gateway.up.background import run_in_background
from gateway.up.check_start import check_start
from gateway.up.engine_choice import EngineChoice, choose_engine
from gateway.up.errors import StateDirectoryError, UpError
from gateway.up.first_run import (
    FirstRunSecrets,
    ShownOnce,
    forget_first_run_secrets,
    offer_first_run_secrets,
)
from gateway.up.orphans import end_orphans, record_of
from gateway.up.part import Part, is_authorized
from gateway.up.parts import (
    Addresses,
    ServiceParts,
    addresses_of,
    count_workers,
    embedded_postgres,
    embedded_valkey,
)
from gateway.up.process_identity import find_start_mark
from gateway.up.progress import Progress, log_to
from gateway.up.state_directory import StateDirectory
from gateway.up.stop_requests import StopRequests
from gateway.up.summary import print_summary, write_ready_file
from gateway.up.supervisor import StopWanted, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.controlplane.bootstrap import BootstrapResult

_LOG = logging.getLogger("forebay.up")

EXIT_REFUSED = 2
EXIT_UNEXPECTED = 1
_DATABASE_SECONDS = 120.0  # a database that was killed replays its log first
_ENGINE_SECONDS = 300.0  # a slow disk, many cores' worth of compilation
_SERVICE_SECONDS = 60.0


def run_up(settings: Settings, ready_file: Path | None) -> int:
    """Start everything, keep it running until a stop is asked for; return the exit code."""
    progress = Progress()
    stop_requests = StopRequests()
    stop_requests.install()
    state = StateDirectory(settings.state_dir)
    try:
        state.prepare()
        with state.locked():
            state.make_folders()
            log_to(state.log_of("up"))
            _Up(settings, state, progress, stop_requests, ready_file).run()
    except UpError as error:
        _LOG.debug("refused", exc_info=True)
        state.undo()
        progress.fail(str(error))
        return EXIT_REFUSED
    except Exception as error:  # noqa: BLE001 - the edge of the process; logged with its trace
        _LOG.exception("unexpected")
        kind = type(error).__name__
        progress.fail(f"Unexpected {kind}: {error} (details in {state.log_of('up')}).")
        return EXIT_UNEXPECTED
    return 0


@dataclass(frozen=True)
class _Bootstrapped:
    """What was offered to the database and what of it the database took."""

    offered: FirstRunSecrets
    is_new_key: bool
    is_new_admin: bool

    def choose_shown(self, base_url: str, pause: Callable[[], None]) -> ShownOnce:
        """Return what to show: what is new, or what a killed start could not show any more.

        The latter is on disk, and the data plane tells whether it was ever committed. Raises
        :class:`gateway.up.errors.StartError` when it tells nothing.
        """
        secret, password = self.offered.api_key_secret, self.offered.admin_password
        if not self.is_new_key and not self.is_new_admin:
            if is_authorized(base_url, secret, pause):
                return ShownOnce(secret, password)
            return ShownOnce()
        return ShownOnce(
            secret if self.is_new_key else None, password if self.is_new_admin else None
        )


class _Up:
    """One run of ``forebay up``."""

    def __init__(
        self,
        settings: Settings,
        state: StateDirectory,
        progress: Progress,
        stop_requests: StopRequests,
        ready_file: Path | None,
    ) -> None:
        self._settings = settings
        self._state = state
        self._progress = progress
        self._ready_file = ready_file
        self._supervisor = Supervisor(progress, stop_requests, self._record)
        self._addresses: Addresses | None = None
        self._model = ""
        self._stop_order: list[Part] = []
        self._has_ended_orphans = False

    def run(self) -> None:
        """Start, watch, stop; whatever happens, nothing is left running."""
        try:
            with suppress(StopWanted):
                self._await_orphans()
                self._start()
                self._supervisor.watch()
        finally:
            # Data plane first, databases last: each stops while what it needs still runs.
            self._supervisor.stop(self._stop_order)
            if self._has_ended_orphans:  # else the record of an earlier run is still needed
                self._state.runtime_file.unlink(missing_ok=True)

    def _await_orphans(self) -> None:
        """See that nothing of an earlier run is alive; its record is of no use then."""
        earlier = self._state.find_json(self._state.runtime_file) or {}
        end_orphans(earlier.get("processes", []), self._progress)
        self._has_ended_orphans = True
        self._state.runtime_file.unlink(missing_ok=True)

    def _start(self) -> None:
        port, admin_port = check_start(
            *(self._settings, self._state, self._ready_file, self._progress),
            self._supervisor.pause,
        )
        internal = self._state.load_secrets()
        engine_choice = choose_engine(self._settings, self._state, self._progress)
        self._model = engine_choice.model
        database_url = self._start_database()
        redis_url = self._start_valkey()
        self._addresses = addresses_of(self._settings, port, admin_port, database_url, redis_url)
        parts = ServiceParts(
            self._settings,
            self._state,
            self._addresses,
            internal,
            count_workers(self._settings.workers, self._progress, has_redis=redis_url is not None),
        )
        engine = parts.engine(engine_choice)
        if engine is not None:
            self._launch(engine)  # loads its weights while the rest starts
        if self._settings.database_url is None:
            self._migrate(database_url)
        bootstrapped = self._bootstrap(database_url, engine_choice)
        worker, controlplane, dataplane = (
            parts.worker(),
            parts.controlplane(),
            parts.dataplane(),
        )
        services: list[Part] = [worker, controlplane, dataplane]
        self._order_stop([dataplane, worker, controlplane])
        for service in services:
            self._supervisor.launch(service)
        if engine is not None:
            self._wait_ready(engine, _ENGINE_SECONDS)
        for service in services:
            self._wait_ready(service, _SERVICE_SECONDS)
        self._tell(bootstrapped)

    def _order_stop(self, parts: list[Part]) -> None:
        """Stop these before what was started earlier."""
        self._stop_order[:0] = parts

    def _launch(self, part: Part) -> None:
        self._state.keep()
        self._order_stop([part])
        self._supervisor.launch(part)

    def _wait_ready(self, part: Part, timeout_seconds: float) -> None:
        with self._progress.step(part.name):
            self._supervisor.wait_ready(part, timeout_seconds)

    def _start_database(self) -> str:
        """Return the database's address, embedded or not."""
        postgres = embedded_postgres(self._settings, self._state)
        if postgres is None:
            database_url = str(self._settings.database_url)
            self._migrate(database_url)  # before anything is started that a refusal would end
            return database_url
        with self._progress.step(postgres.name):
            self._launch(postgres)
            self._supervisor.wait_ready(postgres, _DATABASE_SECONDS)
            postgres.ensure_database()
        return postgres.url

    def _migrate(self, database_url: str) -> None:
        def work() -> None:
            from gateway.up.migrate_database import migrate_database  # noqa: PLC0415 - slow to import

            migrate_database(database_url)

        with self._progress.step("database schema"):
            run_in_background(work, self._supervisor.pause)

    def _start_valkey(self) -> str | None:
        """Return the Redis address; None when there is none to be had."""
        valkey = embedded_valkey(self._settings, self._state)
        if valkey is None:
            return self._settings.redis_url
        with self._progress.step(valkey.name):
            self._launch(valkey)
            self._supervisor.wait_ready(valkey, _DATABASE_SECONDS)
        return valkey.url

    def _bootstrap(self, database_url: str, engine: EngineChoice) -> _Bootstrapped:
        """See that there is something to serve."""
        self._state.keep()  # the secrets must outlive whatever happens to the commit
        offered = offer_first_run_secrets(self._state)

        def work() -> BootstrapResult:
            from gateway.up.bootstrap_catalog import (  # noqa: PLC0415 - slow to import
                bootstrap_catalog,
            )

            email = self._settings.admin_email
            return bootstrap_catalog(database_url, engine, offered, admin_email=email)

        with self._progress.step("organization, project, key, prices"):
            result = run_in_background(work, self._supervisor.pause)
        return _Bootstrapped(offered, result.is_new_key, result.is_new_admin)

    def _tell(self, bootstrapped: _Bootstrapped) -> None:
        """Print the summary, write the ready file, and only then forget the secrets."""
        assert self._addresses is not None  # noqa: S101 - for the type checker
        shown = bootstrapped.choose_shown(self._addresses.base_url, self._supervisor.pause)
        email, root = self._settings.admin_email, self._state.root
        print_summary(self._addresses, self._model, email, shown, root)
        if self._ready_file is not None:
            try:
                write_ready_file(
                    self._ready_file,
                    addresses=self._addresses,
                    model=self._model,
                    admin_email=email,
                    shown=shown,
                    state_dir=root,
                )
            except OSError as error:
                raise StateDirectoryError(
                    f"--ready-file {self._ready_file} cannot be written: {error.strerror}."
                ) from error
        forget_first_run_secrets(self._state)
        _LOG.info("up: %s, admin %s", self._addresses.base_url, self._addresses.admin_url)

    def _record(self) -> None:
        """Write ``runtime.json``: for our commands, and for a later start to find orphans."""
        addresses = self._addresses
        content = {
            "pid": os.getpid(),
            "start_mark": find_start_mark(os.getpid()),
            "model": self._model,
            **(asdict(addresses) if addresses else {}),
            "processes": record_of(self._supervisor.processes()),
        }
        try:
            self._state.write_json(self._state.runtime_file, content)
        except StateDirectoryError as error:
            _LOG.warning("%s", error)  # a full disk must not stop what runs
