"""``python -m backends.simulated --port N``: an engine's interface and pace without a model."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from backends.simulated.options import make_parser, parse_options
from backends.simulated.server import serve


def main(
    arguments: list[str] | None = None,
    *,
    prog: str = "python -m backends.simulated",
    profile: str = "default",
    port: int = 8000,
) -> int:
    """Parse the command line and serve; returns the exit code."""
    options = parse_options(make_parser(prog, profile, port), arguments)

    def tell(urls: list[str]) -> None:
        if options.has_urls_printed:
            sys.stdout.write("".join(f"{url}\n" for url in urls) + "\n")
            sys.stdout.flush()
        if options.ready_file is not None:
            _write_ready_file(options.ready_file, urls)

    return serve(options.configs, tell)


def _write_ready_file(path: Path, urls: list[str]) -> None:
    """Whole or not at all: who waits for it reads it as soon as it is there."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(msgspec.json.encode({"base_urls": urls, "pid": os.getpid()}))
    unfinished.replace(path)


if __name__ == "__main__":
    sys.exit(main())
