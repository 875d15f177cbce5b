"""Command line: ``python -m benchmarks.overhead [--out file.json] [--quick] [--only …]``."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.overhead.errors import BenchmarkError
from benchmarks.overhead.plan import MEASUREMENTS, full_plan, quick_plan
from benchmarks.overhead.report import format_report
from benchmarks.overhead.run import TARGETS, run_benchmark

_FULL_MEMORY_REQUESTS = 300_000
_QUICK_MEMORY_REQUESTS = 2_000
_MILLION = 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 whatever the figures are, 1 when it could not measure."""
    options = _parser().parse_args(arguments)
    make_plan, rounds, memory_requests = full_plan, 3, _FULL_MEMORY_REQUESTS
    if options.quick:
        make_plan, rounds, memory_requests = quick_plan, 1, _QUICK_MEMORY_REQUESTS
    plan = make_plan(
        rounds=options.runs or rounds,
        memory_requests=_MILLION if options.million else memory_requests,
    )
    # Both end what was started; who starts us in the background may have had SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="forebay-overhead-", dir=options.work_dir) as path:
            report = run_benchmark(
                plan, measurements=options.only, targets=options.targets, directory=Path(path)
            )
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped; everything that was started has ended.", file=sys.stderr)
        return 130
    if options.out:
        plain = msgspec.json.encode(report.as_plain())
        options.out.write_bytes(msgspec.json.format(plain, indent=2) + b"\n")
    print(format_report(report))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead",
        description="Compare direct, nginx and Forebay's data plane on one core.",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--quick", action="store_true", help="seconds long; figures mean little")
    parser.add_argument(
        "--only",
        type=_list_of(MEASUREMENTS),
        default=MEASUREMENTS,
        metavar="A,B",
        help=f"of: {','.join(MEASUREMENTS)}",
    )
    parser.add_argument(
        "--targets",
        type=_list_of(TARGETS),
        default=TARGETS,
        metavar="A,B",
        help=f"of: {','.join(TARGETS)}",
    )
    parser.add_argument("--runs", type=_positive, metavar="N", help="rounds to average (3)")
    parser.add_argument(
        "--million", action="store_true", help="a million requests for RSS growth, not 300,000"
    )
    parser.add_argument("--work-dir", type=Path, metavar="DIR", help="where the journal is written")
    return parser


def _list_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}")
        return [name for name in known if name in names]

    return read


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
