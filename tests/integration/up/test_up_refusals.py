"""What ``forebay up`` refuses: one sentence, a non-zero exit code, nothing left behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import time
from pathlib import Path

import pytest

from gateway.up.check_database import check_database
from gateway.up.errors import OptionError, StateDirectoryError
from gateway.up.state_directory import StateDirectory
from gateway.up.summary import check_ready_file
from tests.fixtures.forebay_up import forebay, free_port
from tests.fixtures.processes import find_processes_naming

pytestmark = pytest.mark.faults


def assert_refused(state_dir: Path, says: str, *arguments: str, **variables: str) -> None:
    """A refusal changes nothing: what was there is there, what was not is not."""
    before = entries_of(state_dir)
    result = forebay(
        *("up", "--state-dir", str(state_dir), "--port", "0", "--admin-port", "0"),
        *arguments,
        **variables,
    )
    lines = result.stderr.splitlines()
    sentences = [line for line in lines if line.startswith("forebay: ")]
    assert result.returncode == 2, result.stderr
    assert len(sentences) == 1, result.stderr
    assert says in sentences[0]
    assert sentences[0].removeprefix("forebay: ") not in lines  # said once
    assert "Traceback" not in result.stderr + result.stdout
    assert find_processes_naming(str(state_dir)) == []
    if "was made by PostgreSQL" not in says:  # the one refusal of a part's own, at its launch
        assert entries_of(state_dir) == before


def entries_of(state_dir: Path) -> list[Path] | None:
    """Return all that lies below, None without a directory; what PostgreSQL makes is not ours."""
    if not state_dir.is_dir():
        return None
    return sorted(state_dir.rglob("*"))


@pytest.mark.parametrize("option", ["--port", "--admin-port"])
def test_a_taken_port(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        says = f"Port {port} on 127.0.0.1 is in use by another process; free it or choose another"
        # Neither it nor what is above it was there before.
        assert_refused(tmp_path / "new" / "state", f"{says} with {option}.", option, port)
        assert not (tmp_path / "new").exists()
        (tmp_path / "empty").mkdir()
        assert_refused(tmp_path / "empty", says, option, port)


def test_a_file_where_the_state_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("not a directory")
    assert_refused(tmp_path / "state", "is not a directory")
    assert_refused(tmp_path / "state" / "below", "state directory cannot be used")
    assert (tmp_path / "state").read_text() == "not a directory"


def test_a_directory_of_somebody_else(tmp_path: Path) -> None:
    """A home or / would be shut to everybody else: nothing of it is touched."""
    (tmp_path / "thesis").mkdir()
    tmp_path.chmod(0o755)
    assert_refused(tmp_path, f"{tmp_path} holds other things (thesis); name a new or an empty one.")
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_directory_of_everybody(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert_refused(tmp_path, f"{tmp_path} is open to everybody; name a new or an empty one.")
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize("name", ["owner.lock", "journal", "lost+found", ".cache"])
def test_a_directory_that_holds_a_state_or_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / "start.log").touch()
    if name == "owner.lock":
        (tmp_path / "anything").mkdir()
    StateDirectory(tmp_path).prepare()
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_a_state_directory_that_cannot_be_made() -> None:
    assert_refused(Path("/proc/forebay"), "The state directory cannot be used: /proc/forebay")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_state_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    tmp_path.chmod(0o500)
    assert_refused(tmp_path / "other", "Permission denied")
    tmp_path.chmod(0o700)


def test_a_second_instance(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with (tmp_path / "state" / "owner.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        assert_refused(tmp_path / "state", "Another `forebay up` (process 4711) is running on")


def test_no_disk_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=100 * 1024 * 1024)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(StateDirectoryError, match="100 MiB free, 600 MiB needed"):
        StateDirectory(tmp_path).check_space(is_database_embedded=True)
    with pytest.raises(StateDirectoryError, match="100 MiB free, 200 MiB needed"):
        StateDirectory(tmp_path).check_space(is_database_embedded=False)


def test_database_files_of_another_version(tmp_path: Path) -> None:
    data = tmp_path / "state" / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("9\n")
    assert_refused(tmp_path / "state", "was made by PostgreSQL 9 and the programs here are")


def test_a_damaged_record_of_an_earlier_run_is_kept(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    record = tmp_path / "state" / "runtime.json"
    record.write_text("{")
    record.chmod(0o600)
    for _ in range(2):
        assert_refused(tmp_path / "state", "runtime.json is damaged")
    assert record.read_text() == "{"


def test_damaged_secrets(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "secrets.json").write_text('{"internal_token": ')
    assert_refused(tmp_path / "state", "secrets.json is damaged")
    assert (tmp_path / "state" / "secrets.json").read_text() == '{"internal_token": '


def test_a_database_that_refuses(tmp_path: Path) -> None:
    url = f"postgresql://postgres:hunter2@127.0.0.1:{free_port()}/nothing"
    # With an embedded Valkey and the local engine, which are not even begun.
    assert_refused(
        tmp_path / "state",
        "The database that DATABASE_URL names cannot be used: connection failed",
        DATABASE_URL=url,
    )


def test_a_database_that_keeps_silent(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"postgresql://postgres:hunter2@127.0.0.1:{port}/nothing"
        begun = time.monotonic()
        assert_refused(
            tmp_path / "state",
            "The database that FOREBAY_DATABASE_URL names cannot be used: connection timeout expired",
            FOREBAY_DATABASE_URL=url,
        )
        assert time.monotonic() - begun < 15


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2@127.0.0.1:port/x",
        "postgresql://u:hunter2%zz@127.0.0.1/x",
        "postgresql://u:hun@hunter2@127.0.0.1/x",
        "postgresql://u:hun/hunter2@127.0.0.1/x",
        "postgresql://u:hunter2@127.0.0.1/x?hunter2",
    ],
)
def test_a_database_address_that_cannot_be_read_is_not_quoted(url: str) -> None:
    with pytest.raises(OptionError, match="DATABASE_URL cannot be read") as caught:
        check_database(url, "DATABASE_URL")
    assert "hunter2" not in str(caught.value)


def test_an_engine_whose_model_cannot_be_known(tmp_path: Path) -> None:
    assert_refused(
        tmp_path / "state",
        "start the engine first, or set FOREBAY_VLLM_MODEL",
        FOREBAY_VLLM_URL=f"http://127.0.0.1:{free_port()}",
    )


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nowhere/ready.json", "No such file or directory"),
        ("folder", "it is a directory"),
        ("file/ready.json", "Not a directory"),
        ("link", "it is a symbolic link"),
        ("pipe", "it is no regular file"),
        ("a" * 250, "File name too long"),
        ("closed/ready.json", "Permission denied"),
    ],
)
def test_a_ready_file_that_cannot_be_written(tmp_path: Path, path: str, reason: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "closed").mkdir(mode=0o500)
    if "closed" in path and os.geteuid() == 0:
        pytest.skip("root writes anywhere")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OptionError, match=f"cannot be written: {reason}"):
        check_ready_file(tmp_path / path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_ready_file_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "ready.json"
    says = f"--ready-file {path} cannot be written: No such file or directory."
    assert_refused(tmp_path / "state", says, "--ready-file", str(path))


def test_the_check_of_a_ready_file_shows_nobody_a_file(tmp_path: Path) -> None:
    (tmp_path / "ready.json").write_text("of an earlier run")
    check_ready_file(tmp_path / "ready.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("variable", ["FOREBAY_PG_BIN", "FOREBAY_VALKEY_BIN"])
def test_programs_that_are_not_there(tmp_path: Path, variable: str) -> None:
    assert_refused(tmp_path / "state", f"{variable} is", **{variable: str(tmp_path / "none")})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--port", "abc"), "--port ('abc') cannot be used"),
        (("--port", "70000"), "--port ('70000') cannot be used"),
        (("--workers", "0"), "--workers ('0') cannot be used"),
        (("--host", "no such host"), "--host ('no such host') cannot be used"),
        (("--host", "198.51.100.7"), "--host 198.51.100.7 is no address of this machine"),
    ],
)
def test_options_that_cannot_work(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    assert_refused(tmp_path / "state", says, *arguments)
