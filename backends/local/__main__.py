"""``python -m backends.local --port N``: the local engine without the rest of the gateway."""

from __future__ import annotations

import argparse
import sys

from backends.local.config import DEFAULT_MODEL_NAME, LocalEngineConfig
from backends.local.server import serve
from backends.local.weights import MAX_CONTEXT_TOKENS


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and serve; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m backends.local",
        description="OpenAI-compatible server of SmolLM2-135M-Instruct on the CPU",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: any free one")
    parser.add_argument("--model-name", default=DEFAULT_MODEL_NAME)
    parser.add_argument("--max-num-seqs", type=int, default=32, help="sequences run together")
    parser.add_argument("--cache-gib", type=int, default=1, help="key-value cache, GiB")
    parser.add_argument(
        "--context-tokens", type=int, default=MAX_CONTEXT_TOKENS, help="prompt and output"
    )
    parser.add_argument("--threads", type=int, default=None, help="inference threads")
    options = parser.parse_args(arguments)
    try:
        config = LocalEngineConfig(**vars(options))
    except ValueError as error:
        parser.error(str(error))
    return serve(config)


if __name__ == "__main__":
    sys.exit(main())
