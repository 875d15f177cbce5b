"""Fixtures that every test may ask for. Nothing starts until one does."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import certifi
import pytest
from hypothesis import HealthCheck, settings

# On a machine that does other things too, time is no reason for a property to fail.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

# Some machines are told to keep no bytecode. Hundreds of processes start here, and each would
# compile all our modules again: a third of what it costs to start one.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell's background job ignores Ctrl-C, and so would every process that is started, and stopped, here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A collection looks at all that two hundred imported modules hold; those were a tenth of the run.
gc.set_threshold(20_000, 20, 20)

pytest_plugins = [
    "tests.fixtures.postgres",
    "tests.fixtures.valkey",
    "tests.fixtures.redis_servers",
    "tests.fixtures.limiters",
    "tests.fixtures.local_engine",
    "tests.fixtures.small_disk",
    "tests.long_files_first",
]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Have the garbage collector pass over what was imported: it is here to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _one_certificate(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let HTTP clients read one certificate instead of 150: tests speak to this machine, in plain.

    Hundreds of clients are made here, and 40 ms of CPU each were a tenth of the whole run.
    """
    end = "-----END CERTIFICATE-----\n"
    first, _, _ = Path(certifi.where()).read_text().partition(end)
    path = tmp_path_factory.mktemp("certificates") / "one.pem"
    path.write_text(first + end)
    certifi.where = lambda: str(path)
