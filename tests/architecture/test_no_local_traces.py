"""Nothing in the repository names a machine's own paths or where packages were fetched from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, relative, tracked_files

# Written so that this file does not find itself.
_HOSTS = (
    "pypi" + r"\.org",
    "pythonhosted" + r"\.org",
    "npmjs" + r"\.(?:org|com)",
    "artifac" + "tory",
)
_OPTIONS = (
    "--index" + "-url",
    "--extra-index" + "-url",
    "--find" + "-links",
    "--trusted" + "-host",
)
_PATHS = (r"(?<![\w.])/(?:work|farm|root|Users)" + "/", r"(?<![\w.])/tmp/" + "[a-z]")
TRACES = re.compile("|".join((*_HOSTS, *(rf"(?<![\w-]){option}" for option in _OPTIONS), *_PATHS)))


def find_traces(text: str) -> list[str]:
    return [found[0] for found in TRACES.finditer(text)]


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""  # a picture


def test_no_tracked_file_names_a_machine() -> None:
    found = {
        relative(path): traces
        for path in tracked_files()
        if (traces := find_traces(read_text(path)))
    }
    assert found == {}


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-dev.lock"])
def test_locks_have_hashes_and_no_addresses(name: str) -> None:
    lock = (ROOT / name).read_text(encoding="utf-8")
    assert "://" not in lock
    pinned = re.findall(r"^([\w.-]+)==\S+", lock, flags=re.MULTILINE)
    assert len(pinned) > 50
    assert lock.count("--hash=sha256:") >= len(pinned)
    assert "llama-cpp-python" not in pinned


def test_the_check_sees_traces() -> None:
    for trace in (
        "see /wor" + "k/main",
        "-i --index" + "-url x",
        "https://pyp" + "i.org/simple",
        'open("/tm' + 'p/x")',
    ):
        assert find_traces(trace), trace
    assert find_traces("the network/worker; docs/root.md; a/tmp/b") == []
