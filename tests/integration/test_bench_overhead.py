"""The overhead benchmark works: its figures are all there and no request failed. Not the speed."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from benchmarks.overhead.compile_sources import Binaries, compile_sources
from benchmarks.overhead.errors import MeasurementError, MissingToolError
from benchmarks.overhead.journal_count import JournalCount
from benchmarks.overhead.load_client import LoadClient
from benchmarks.overhead.machine import choose_cpus, find_tools
from benchmarks.overhead.memory import slope_per_million
from benchmarks.overhead.plan import quick_plan
from benchmarks.overhead.start_engine import start_engine
from benchmarks.overhead.target import Target
from benchmarks.overhead.workload import Workload, Workloads, write_workloads
from billing.usage.event import (
    CloseRecord,
    OpenRecord,
    RequestIdentity,
    RequestStatus,
    TokenUsage,
)

_REPOSITORY = Path(__file__).parents[2]
_MARK = "OVERHEAD_BENCHMARK_TEST"
_FIGURES = {
    "sat_rps",
    "sat_p50_ms",
    "sat_p99_ms",
    "one_p50_ms",
    "one_p99_ms",
    "rate_p50_ms",
    "rate_p99_ms",
    "burst_chunks_s",
    "paced_delay_p50_ms",
    "paced_delay_p99_ms",
    "paced_cpu",
    "held_streams",
}
_FOREBAY_FIGURES = _FIGURES | {
    "burst_continuous_chunks_s",
    "paced_continuous_delay_p99_ms",
    "held_continuous_streams",
    "rss_idle_mb",
    "rss_after_mb",
    "rss_worker_peak_mb",
    "rss_growth_mb_per_million",
    "journal_bytes_per_request",
}

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    try:
        find_tools()
        choose_cpus()
    except MissingToolError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Binaries:
    return compile_sources(find_tools().gcc, tmp_path_factory.mktemp("binaries"))


@pytest.fixture
def engine_port(binaries: Binaries, tmp_path: Path) -> Iterator[int]:
    with ExitStack() as stack:
        yield start_engine(stack, binaries.mock_engine, tmp_path, choose_cpus().load)[1]


@pytest.fixture
def workloads(tmp_path: Path) -> Workloads:
    return write_workloads(tmp_path, quick_plan(rounds=1, memory_requests=1))


def _command(work_dir: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.overhead", "--work-dir", str(work_dir), *options]


def _environment(work_dir: Path) -> dict[str, str]:
    return {**os.environ, _MARK: str(work_dir)}


def _processes_of(work_dir: Path) -> list[str]:
    """Return the command lines of living processes that were started for ``work_dir``.

    By command line or environment: worker processes name no directory, nginx keeps no environment.
    """
    mark = f"{_MARK}={work_dir}\0".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
            environment = (process / "environ").read_bytes() + b"\0"
        except OSError:
            continue
        if str(work_dir).encode() in command or mark in environment:
            found.append(command.decode(errors="replace"))
    return found


def test_quick_run_measures_all_targets_and_loses_no_request(tmp_path: Path) -> None:
    out, work_dir = tmp_path / "figures.json", tmp_path / "work"
    work_dir.mkdir()

    done = subprocess.run(
        _command(work_dir, "--quick", "--out", str(out)),
        cwd=_REPOSITORY,
        env=_environment(work_dir),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(out.read_text())
    assert set(report["direct"]) >= _FIGURES
    assert set(report["nginx"]) >= _FIGURES
    assert set(report["forebay"]) >= _FOREBAY_FIGURES
    for name in ("direct", "nginx", "forebay"):
        assert report[name]["bad"] == 0, done.stderr
        assert report[name]["answered"] > 0
        assert report[name]["sat_rps"] > 0
    assert report["forebay"]["unmetered"] == 0
    assert report["forebay"]["journal_open"] == 0
    assert report["ratios"]["forebay_of_nginx"] > 0
    assert all(set(row) == {"name", "wanted", "got", "ok"} for row in report["expected"])
    assert all(row["got"] is not None for row in report["expected"])
    assert "nginx" in done.stdout
    assert "forebay" in done.stdout
    assert _processes_of(work_dir) == []
    assert list(work_dir.iterdir()) == []


def test_interrupt_ends_everything(tmp_path: Path) -> None:
    with subprocess.Popen(
        _command(tmp_path, "--quick", "--targets", "nginx,forebay", "--runs", "50"),
        cwd=_REPOSITORY,
        env=_environment(tmp_path),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "round 1" in process.stderr.readline()
        assert len(_processes_of(tmp_path)) >= 5  # itself, the engine, nginx, Forebay, its worker

        process.send_signal(signal.SIGINT)
        status = process.wait(timeout=60)

    assert status == 130
    assert _processes_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_missing_compiler_is_one_clear_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        _command(tmp_path, "--quick"),
        cwd=_REPOSITORY,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "needs gcc" in done.stderr


def test_load_client_counts_a_reply_that_is_not_the_expected_one(
    binaries: Binaries, engine_port: int, workloads: Workloads
) -> None:
    client = LoadClient(binaries.load, choose_cpus().load)
    target = Target(name="engine", port=engine_port)
    other_text = Workload(workloads.json.body, ("-x", "never in the reply"))
    too_many_events = Workload(workloads.burst.body, ("-s", "-e", "999"))
    not_a_stream = Workload(workloads.json.body, ("-s",))

    good = client.run(target, workloads.json, connections=4, requests=20)
    wrong_text = client.run(target, other_text, connections=4, requests=20)
    wrong_events = client.run(target, too_many_events, connections=4, requests=20)
    no_stream = client.run(target, not_a_stream, connections=4, requests=20)

    assert (good.answered, good.bad) == (20, 0)
    assert (wrong_text.answered, wrong_text.bad_body) == (0, 20)
    assert (wrong_events.answered, wrong_events.incomplete) == (0, 20)
    assert (no_stream.answered, no_stream.incomplete) == (0, 20)


def test_open_loop_sends_its_whole_schedule_and_counts_waiting(
    binaries: Binaries, engine_port: int, workloads: Workloads
) -> None:
    """One connection and replies of 200 ms: the tenth request waits for nine others."""
    client = LoadClient(binaries.load, choose_cpus().load)
    target = Target(name="engine", port=engine_port)

    result = client.run(target, workloads.paced, connections=1, seconds=0.5, rate=20)

    assert result.issued == result.answered == 10
    assert result.latency_ms is not None
    reply_ms, schedule_ms = 200, 50
    assert result.latency_ms.max >= 10 * reply_ms - 9 * schedule_ms - schedule_ms


@pytest.mark.parametrize(
    ("prompt", "options", "usages"),
    [
        ("chunks=4", {"include_usage": True, "continuous_usage_stats": True}, 7),
        ("chunks=4 usage=last", {"include_usage": True, "continuous_usage_stats": True}, 1),
        ("chunks=4", {"include_usage": True}, 1),
        ("chunks=4", {}, 0),
        ("chunks=4 pace_ms=1", {"include_usage": True, "continuous_usage_stats": True}, 7),
    ],
)
def test_engine_gives_usage_as_it_was_asked(
    engine_port: int, prompt: str, options: dict[str, bool], usages: int
) -> None:
    body = {
        "model": "any",
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
        "stream_options": options,
    }
    connection = http.client.HTTPConnection("127.0.0.1", engine_port, timeout=10)
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        events = connection.getresponse().read().decode().split("\n\n")
    finally:
        connection.close()

    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    counted = [chunk["usage"]["completion_tokens"] for chunk in chunks if "usage" in chunk]
    assert len(counted) == usages
    assert counted == sorted(counted)
    assert counted[-1:] in ([4], [])


def _record(record: OpenRecord | CloseRecord) -> bytes:
    payload = msgspec.json.encode(record)
    return b"%08x %s\n" % (zlib.crc32(payload), payload)


def _identity(number: int) -> RequestIdentity:
    return RequestIdentity(
        request_id=f"req_{number}",
        organization_id="org_1",
        project_id="proj_1",
        api_key_id="key_1",
        route_id="rte_1",
        route="mock",
        deployment_id="dep_1",
        endpoint="chat.completions",
        is_stream=False,
        started_at_us=1,
    )


def _close(number: int, status: RequestStatus, output_tokens: int | None) -> CloseRecord:
    return CloseRecord(
        identity=_identity(number),
        status=status,
        http_status=200,
        usage=TokenUsage(input_tokens=1, output_tokens=output_tokens),
        replica_id="rep_1",
        attempts=1,
        finished_at_us=2,
    )


def test_journal_count_reads_each_record_once_and_removes_finished_segments(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "jrn_1"
    directory.mkdir()
    first, second = directory / "00000001.log", directory / "00000002.log"
    opened = [_record(OpenRecord(_identity(number))) for number in (1, 2, 3)]
    whole = _record(_close(1, RequestStatus.COMPLETED, 5))
    half = len(whole) // 2
    first.write_bytes(b"".join(opened) + whole[:half] + bytes(100))
    count = JournalCount(tmp_path)

    before = count.read()
    assert (before.opened, before.closed, before.completed_with_usage) == (3, 0, 0)

    first.write_bytes(b"".join(opened) + whole + bytes(100))
    second.write_bytes(
        _record(_close(2, RequestStatus.COMPLETED, None))
        + _record(_close(3, RequestStatus.FAILED, 5))
        + bytes(100)
    )
    after = count.settle()

    assert (after.opened, after.closed, after.completed_with_usage) == (3, 3, 1)
    assert [path.name for path in directory.iterdir()] == [second.name]


def test_journal_count_refuses_a_wrong_checksum(tmp_path: Path) -> None:
    (tmp_path / "jrn_1").mkdir()
    record = _record(OpenRecord(_identity(1))).replace(b"proj_1", b"proj_2")
    (tmp_path / "jrn_1" / "00000001.log").write_bytes(record + bytes(10))

    with pytest.raises(MeasurementError, match="checksum"):
        JournalCount(tmp_path).read()


def test_growth_is_a_slope_that_one_odd_reading_does_not_move() -> None:
    flat = [(number * 1000, 50.0) for number in range(10)]
    leak = [(number * 1000, 50.0 + number * 0.1) for number in range(10)]
    odd = [*flat[:5], (5000, 90.0), *flat[6:]]

    assert slope_per_million(flat) == 0
    assert slope_per_million(leak) == pytest.approx(100)
    assert slope_per_million(odd) == 0
