"""The embedded PostgreSQL: its data survives every death, and nothing survives its owner."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from gateway.up import postgres_programs
from gateway.up.errors import DatabaseStartError, StateDirectoryError
from gateway.up.postgres import EmbeddedPostgres
from gateway.up.postgres_programs import find_server_user, get_postgres_programs
from tests.fixtures.processes import end_owner, is_alive, read_line, start_owner, wait_for

pytestmark = pytest.mark.faults

_OWNER = """
import sys, time
from pathlib import Path
from gateway.up.postgres import EmbeddedPostgres
print(EmbeddedPostgres(Path(sys.argv[1])).start(), flush=True)
time.sleep(60)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "a state directory" / "postgres"


@pytest.fixture(autouse=True)
def _parent(directory: Path) -> None:
    directory.parent.mkdir()


@pytest.fixture(scope="module")
def made_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data that a server made and left as it should: making it costs two seconds of CPU."""
    directory = tmp_path_factory.mktemp("made once") / "postgres"
    server = EmbeddedPostgres(directory, database="forebay")
    server.start()
    server.stop()
    return directory


@pytest.fixture
def made(made_directory: Path, directory: Path) -> Path:
    """Return ``directory`` with such data in it."""
    subprocess.run(["cp", "-a", str(made_directory), str(directory)], check=True)
    return directory


@pytest.fixture
def running(made: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(made, database="forebay")
    server.start()
    yield server
    server.stop()


def read_pid(directory: Path) -> int:
    return int((directory / "data" / "postmaster.pid").read_text().splitlines()[0])


def test_in_a_path_with_spaces_private_with_fsync_and_no_network(directory: Path) -> None:
    server = EmbeddedPostgres(directory, database="forebay")
    with psycopg.connect(server.start()) as connection:
        shown = connection.execute(
            "SELECT current_database(), current_setting('fsync'),"
            " current_setting('listen_addresses'), datlocprovider, pg_encoding_to_char(encoding)"
            " FROM pg_database WHERE datname = current_database()"
        ).fetchone()
    assert shown == ("forebay", "on", "", "b", "UTF8")
    assert directory.stat().st_mode & 0o077 == 0
    assert (directory / "data").stat().st_mode & 0o077 == 0
    assert server.log_path.stat().st_mode & 0o077 == 0
    server.stop()


def test_a_killed_postmaster_comes_back_with_its_data(
    running: EmbeddedPostgres, directory: Path
) -> None:
    with psycopg.connect(running.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    pid = read_pid(directory)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), "the postmaster is gone")
    again = EmbeddedPostgres(directory, database="forebay")
    give_up = 50
    while True:  # backends that still hold its memory make a start fail for a moment
        try:
            again.start()
            break
        except DatabaseStartError:
            give_up -= 1
            assert give_up
    with psycopg.connect(again.url) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
    again.stop()


def test_a_killed_owner_takes_the_server_with_it_and_the_next_one_starts_at_once(
    made: Path,
) -> None:
    directory = made
    owner = start_owner(_OWNER, str(directory))
    url = read_line(owner)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    pid = read_pid(directory)
    end_owner(owner)
    server = EmbeddedPostgres(directory)  # not waiting for the old one: start() does
    with psycopg.connect(server.start()) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
    assert not is_alive(pid)
    server.stop()


@pytest.mark.parametrize("is_zombie", [False, True], ids=["a stranger", "a zombie"])
def test_lock_files_that_name_another_process_are_no_hindrance(
    made: Path, *, is_zombie: bool
) -> None:
    """After a reboot the number may be anybody's; a killed server's may wait to be reaped."""
    directory, server = made, EmbeddedPostgres(made)
    user = find_server_user()
    other = subprocess.Popen(  # of the server's own account: others' processes it may not signal
        ["/bin/sleep", "60"], user=None if user is None else user.uid
    )
    try:
        if is_zombie:
            other.kill()
            os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        content = f"{other.pid}\n{directory}/data\n0\n5432\n{directory}\n\n"
        for lock_file in (directory / "data" / "postmaster.pid", directory / ".s.PGSQL.5432.lock"):
            lock_file.write_text(content)
            if user is not None:
                os.chown(lock_file, user.uid, user.gid)
        server.start()
        server.stop()
        assert is_zombie or other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_an_empty_lock_file_is_no_hindrance(made: Path) -> None:
    server = EmbeddedPostgres(made)
    (made / "data" / "postmaster.pid").touch()
    server.start()
    server.stop()


def test_an_interrupted_initdb_starts_over(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    (directory / "data.partial").mkdir()
    (directory / "data.partial" / "PG_VERSION").write_text("half")
    server = EmbeddedPostgres(directory)
    server.start()
    server.stop()
    assert not (directory / "data.partial").exists()


def test_a_long_path_gets_a_short_socket_that_is_tidied_away(tmp_path: Path) -> None:
    directory = tmp_path / ("deep" * 20) / "postgres"
    directory.parent.mkdir()
    server = EmbeddedPostgres(directory)
    psycopg.connect(server.start()).close()
    socket_directory = Path(psycopg.conninfo.conninfo_to_dict(server.url)["host"])  # type: ignore[arg-type]
    assert len(os.fsencode(socket_directory / ".s.PGSQL.5432")) < 100
    assert socket_directory.stat().st_mode & 0o077 == 0
    server.stop()
    assert not socket_directory.exists()


def test_data_of_another_version_is_refused(directory: Path) -> None:
    (directory / "data").mkdir(parents=True)
    (directory / "data" / "PG_VERSION").write_text("9\n")
    with pytest.raises(StateDirectoryError, match="made by PostgreSQL 9 and the programs here"):
        EmbeddedPostgres(directory).start()


def test_a_strangers_files_are_not_overwritten(directory: Path) -> None:
    (directory / "data").mkdir(parents=True)
    (directory / "data" / "thesis.txt").write_text("irreplaceable")
    with pytest.raises(StateDirectoryError, match="holds no PostgreSQL data"):
        EmbeddedPostgres(directory).start()
    assert (directory / "data" / "thesis.txt").read_text() == "irreplaceable"


def test_damaged_data_gives_postgres_own_reason(made: Path) -> None:
    server = EmbeddedPostgres(made)
    (made / "data" / "global" / "pg_control").write_bytes(b"garbage")
    with pytest.raises(DatabaseStartError, match=r"did not start on .*(FATAL|PANIC)"):
        server.start()


def test_programs_that_are_not_there(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(DatabaseStartError, match="has no 'postgres'"):
        EmbeddedPostgres(directory, program_directory=tmp_path).start()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to hand the server to nobody")
def test_as_root_below_a_closed_directory() -> None:
    """Like a checkout and a state directory in /root: nobody may enter, and stays out."""
    with tempfile.TemporaryDirectory() as closed:
        Path(closed).chmod(0o700)
        server = EmbeddedPostgres(Path(closed) / "postgres")
        with psycopg.connect(server.start()) as connection:
            connection.execute("CREATE TABLE t (x int)")
        owner = Path(closed, "postgres", "data").stat().st_uid
        server.stop()
        assert owner != 0
        assert Path(closed).stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to hand the server to nobody")
def test_as_root_from_an_installation_below_a_closed_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = get_postgres_programs(None, None).bin.parent
    libraries = installed.parent.with_name(f"{installed.parent.name}.libs")
    with tempfile.TemporaryDirectory() as closed, tempfile.TemporaryDirectory() as cache:
        monkeypatch.setattr(postgres_programs, "_CACHE", Path(cache))
        Path(cache).chmod(0o755)
        package = Path(closed) / installed.parent.name
        shutil.copytree(installed, package / installed.name, symlinks=True)
        if libraries.is_dir():
            shutil.copytree(libraries, Path(closed) / libraries.name)
        programs = package / installed.name / "bin"
        for _ in range(2):  # the second start finds the first one's copy
            server = EmbeddedPostgres(Path(closed) / "postgres", program_directory=programs)
            psycopg.connect(server.start()).close()
            server.stop()
        assert len(list(Path(cache).iterdir())) == 1
        assert Path(closed).stat().st_mode & 0o077 == 0
