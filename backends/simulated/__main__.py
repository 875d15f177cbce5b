"""``python -m backends.simulated --port N``: an engine's interface and pace without a model."""

from __future__ import annotations

import argparse
import sys

from backends.simulated.config import DEFAULT_MODEL_NAME, Faults, Pace, SimulatedEngineConfig
from backends.simulated.server import serve


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line and serve; returns the exit code."""
    parser = _make_parser()
    options = vars(parser.parse_args(arguments))
    try:
        pace = Pace(**{name: options.pop(name) for name in Pace.__struct_fields__})
        fault = {name: options.pop(f"fault_{name}") for name in Faults.__struct_fields__}
        has_faults = fault != {name: getattr(Faults(), name) for name in fault}
        config = SimulatedEngineConfig(
            pace=pace, faults=Faults(**fault) if has_faults else None, **options
        )
    except ValueError as error:
        parser.error(str(error))
    return serve(config)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m backends.simulated",
        description="OpenAI-compatible server that is timed like an engine and makes no sense",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8000, help="0: any free one")
    add("--model-name", default=DEFAULT_MODEL_NAME)
    add("--context-tokens", type=int, default=32_768, help="prompt and output")
    add("--bytes-per-token", type=float, default=4.0, help="of the prompt")
    add("--default-output-tokens", type=int, default=128, help="without max_tokens")
    add("--mean-output-tokens", type=float, default=None, help="None: all of max_tokens")
    add("--output-spread", type=float, default=0.6, help="sigma of the length's logarithm")
    add("--seed", type=int, default=0, help="of the lengths")
    pace = Pace()
    add("--prefill-tokens-per-second", type=float, default=pace.prefill_tokens_per_second)
    add("--step-ms", type=float, default=pace.step_ms, help="of a step with nothing to do")
    add("--step-ms-per-sequence", type=float, default=pace.step_ms_per_sequence)
    add("--step-tokens", type=int, default=pace.step_tokens, help="most tokens of a step")
    add("--max-num-seqs", type=int, default=pace.max_num_seqs, help="sequences run together")
    add("--kv-cache-tokens", type=int, default=pace.kv_cache_tokens)
    add("--max-waiting", type=int, default=None, help="more get 503; None: any number")
    add("--fault-every", type=int, default=1, help="of how many requests one goes wrong")
    add("--fault-status", type=int, default=None, help="answer this")
    add("--fault-delay-ms", type=float, default=0.0, help="stay silent first")
    add("--fault-cut-after-tokens", type=int, default=None, help="break the connection then")
    return parser


if __name__ == "__main__":
    sys.exit(main())
