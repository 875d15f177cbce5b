"""The embedded Valkey: its data survives SIGKILL, and it does not survive its owner."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import redis

from gateway.up.errors import CounterStoreStartError
from gateway.up.valkey import EmbeddedValkey, find_valkey_program
from tests.fixtures.processes import end_owner, is_alive, read_line, start_owner, wait_for

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(find_valkey_program(None) is None, reason="no Valkey for this platform"),
]

_OWNER = """
import sys, time
from pathlib import Path
from gateway.up.valkey import EmbeddedValkey, find_valkey_program
server = EmbeddedValkey(Path(sys.argv[1]), program=find_valkey_program(None))
print(server.start(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def server(tmp_path: Path) -> EmbeddedValkey:
    directory = tmp_path / "a state directory" / "valkey"
    directory.parent.mkdir()
    program = find_valkey_program(None)
    assert program is not None
    return EmbeddedValkey(directory, program=program)


def read_pid(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return int(client.info("server")["process_id"])


def test_killed_it_comes_back_with_its_data(server: EmbeddedValkey) -> None:
    url = server.start()
    with redis.Redis.from_url(url) as client:
        client.set("kept", "42")
    pid = read_pid(url)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), "the server is gone")
    with redis.Redis.from_url(server.start()) as client:
        assert client.get("kept") == b"42"
    server.stop()


def test_it_listens_on_no_port_and_its_files_are_private(
    server: EmbeddedValkey, tmp_path: Path
) -> None:
    with redis.Redis.from_url(server.start()) as client:
        assert client.config_get("port") == {"port": "0"}
    directory = tmp_path / "a state directory" / "valkey"
    assert directory.stat().st_mode & 0o077 == 0
    assert server.log_path.stat().st_mode & 0o077 == 0
    server.stop()


def test_a_killed_owner_takes_it_along(tmp_path: Path) -> None:
    owner = start_owner(_OWNER, str(tmp_path / "valkey"))
    pid = read_pid(read_line(owner))
    end_owner(owner)
    wait_for(lambda: not is_alive(pid), "the server is gone", 5)


def test_damaged_data_gives_its_own_reason(server: EmbeddedValkey, tmp_path: Path) -> None:
    server.start()
    server.stop()
    files = tmp_path / "a state directory" / "valkey" / "appendonlydir"
    (files / "appendonly.aof.manifest").write_text("garbage\n")
    with pytest.raises(CounterStoreStartError, match="Valkey did not start on"):
        server.start()


def test_an_override_that_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(CounterStoreStartError, match="FOREBAY_VALKEY_BIN"):
        find_valkey_program(tmp_path / "nothing")
