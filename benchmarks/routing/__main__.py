"""Command line: ``python -m benchmarks.routing [--data file] [--out file.json]``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from routing.complexity.predictor import SHIPPED, read_weights

if TYPE_CHECKING:
    from routing.learned.judged_prompts import JudgedPrompt

SHARED = Path(__file__).parents[3] / "shared" / "data" / "routing" / "routing.parquet"
# Weights belong to a pair of models, and so do the datasets' scores.
WEIGHTS = {
    SHIPPED: ("mmlu", "gsm8k", "mt_bench"),
    SHIPPED.with_name("llama-8b-70b.bin"): ("mmlu_pro", "gsm8k_llama", "math_l5", "crux"),
}
# Dataset and figure, what it has to be, and whether more is better.
GOALS = (
    ("mmlu", "apgr", 0.66, True),
    ("mmlu", "cpt50", 27.0, False),
    ("gsm8k", "apgr", 0.598, True),
    ("mmlu_pro", "apgr", 0.55, True),
)
LATENCY_GOAL_MS = 1.0
TOKENS = 400
_CALLS = 2000


def main() -> int:
    """Judge the shipped weights on the rows of test and ood, print the table and which goals were met.

    What cannot be measured ends with 2; only without ``--data``, where the shared file is not there, with 0.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing", description=__doc__)
    parser.add_argument("--data", type=Path, metavar="FILE", help=f"default: {SHARED}")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args()
    data: Path = options.data or SHARED
    if options.data is None and not data.is_file():
        print(f"skipped: the judged prompts are not here ({data}); give --data FILE")
        return 0
    needed = ("numpy", "pyarrow") if data.suffix == ".parquet" else ("numpy",)
    if missing := [name for name in needed if find_spec(name) is None]:
        return _refuse(f"{' and '.join(missing)} not installed: `make bench-routing` installs them")
    from routing.learned.judged_prompts import (  # noqa: PLC0415 - needs numpy, see above
        DataError,
        read_judged_prompts,
    )

    try:
        report = judge(read_judged_prompts(data))
    except DataError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{data} cannot be read: {error.strerror}")
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


def _refuse(sentence: str) -> int:
    print(f"nothing was measured: {sentence}", file=sys.stderr)
    return 2


def judge(rows: Sequence[JudgedPrompt]) -> dict[str, Any]:
    """Return the report with its latency and goals, after printing them. Raises DataError."""
    from gateway.cli.judged_figures import print_figures  # noqa: PLC0415 - needs numpy, see above
    from routing.learned.evaluate import evaluate, measure_latency  # noqa: PLC0415
    from routing.learned.judged_prompts import DataError  # noqa: PLC0415

    known = {dataset for datasets in WEIGHTS.values() for dataset in datasets}
    rows = [row for row in rows if row.dataset in known]
    held_out = [row for row in rows if row.split != "train"]
    if not held_out:
        raise DataError(f"no rows of test or ood of {', '.join(sorted(known))}")
    # About four characters a token.
    long_ones = [row.prompt for row in held_out if 1500 <= len(row.prompt) <= 1700]
    report: dict[str, Any] = {"weights": {}, "datasets": {}}
    for path, datasets in WEIGHTS.items():
        predictor = read_weights(path)
        mine = [row for row in rows if row.dataset in datasets]
        found = evaluate(
            predictor,
            [row for row in mine if row.split != "train"],
            fitted_on=[row for row in mine if row.split == "train"],
        )
        report["weights"] |= found["weights"]
        report["datasets"] |= found["datasets"]
        if "milliseconds_at_400_tokens" not in report:
            report["milliseconds_at_400_tokens"] = measure_latency(predictor, long_ones, _CALLS)
    report["goals_met"] = find_goals(report)
    print_figures(report)
    print(f"CPU ms at {TOKENS} tokens: {report['milliseconds_at_400_tokens']}")
    for goal, is_met in report["goals_met"].items():
        print(f"{'met' if is_met else 'MISSED':<7} {goal}")
    return report


def find_goals(report: dict[str, Any]) -> dict[str, bool]:
    """Tell which goals were met."""
    met: dict[str, bool] = {}
    for dataset, figure, wanted, is_more_better in GOALS:
        entry = report["datasets"].get(dataset)
        if entry is not None and "classifier" in entry["routers"]:
            found = entry["routers"]["classifier"][figure]
            is_met = found >= wanted if is_more_better else found <= wanted
            sign = ">=" if is_more_better else "<="
            met[f"{dataset}_{figure} {sign} {wanted:g} (is {found:.3f})"] = is_met
    routers = report["datasets"].get("gsm8k", {}).get("routers")
    if routers:
        ours, length = routers["classifier"], routers["length"]
        # Length's own figure moves with the rows, so it is measured on the same ones.
        told = f"gsm8k_apgr >= {length['apgr']:.3f}, length's on these rows (is {ours['apgr']:.3f})"
        met[told] = ours["apgr"] >= length["apgr"] - 1e-9
    p99 = report["milliseconds_at_400_tokens"].get("p99")
    if p99 is not None:
        met[f"p99_at_400_tokens < {LATENCY_GOAL_MS:g} ms (is {p99:.3f})"] = p99 < LATENCY_GOAL_MS
    return met


if __name__ == "__main__":
    sys.exit(main())
