"""Command line: ``python -m benchmarks.routing [--data file] [--out file.json]``."""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gateway.cli.output import print_table
from routing.complexity.predictor import SHIPPED, read_weights

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
    ("mmlu_pro", "apgr", 0.55, True),
)
LATENCY_GOAL_MS = 1.0
TOKENS = 400
_CALLS = 2000


def main() -> int:
    """Judge the shipped weights on the rows of test and ood, print the table and which goals were met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing", description=__doc__)
    parser.add_argument("--data", type=Path, default=SHARED, metavar="FILE")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args()
    if not options.data.is_file():
        print(f"skipped: the judged prompts are not here ({options.data}); give --data FILE")
        return 0
    needed = ("numpy", "pyarrow") if options.data.suffix == ".parquet" else ("numpy",)
    if missing := [name for name in needed if find_spec(name) is None]:
        print(f"skipped: {' and '.join(missing)} not installed (pip install forebay[train])")
        return 0
    report = judge(options.data)
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


def judge(data: Path) -> dict[str, Any]:
    """Return the report with its latency and goals, after printing them."""
    from gateway.cli.router import TABLE, list_figures  # noqa: PLC0415 - needs numpy, see above
    from routing.learned.evaluate import evaluate, measure_latency  # noqa: PLC0415
    from routing.learned.judged_prompts import read_judged_prompts  # noqa: PLC0415

    rows = read_judged_prompts(data)
    held_out = [row for row in rows if row.split != "train"]
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
        report["weights"][path.stem] = predictor.digest
        report["datasets"] |= found["datasets"]
        if "milliseconds_at_400_tokens" not in report:
            report["milliseconds_at_400_tokens"] = measure_latency(predictor, long_ones, _CALLS)
    report["goals_met"] = find_goals(report)
    print_table(list_figures(report), TABLE, empty="no rows")
    for name, entry in report["datasets"].items():
        print(f"{name}: in domain {entry['in_domain_share']:.1%}, entropy {entry['entropy']:.2f}")
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
    if "gsm8k" in report["datasets"]:
        ours, length = (report["datasets"]["gsm8k"]["routers"][n] for n in ("classifier", "length"))
        # Length's own figure moves with the rows, so it is measured on the same ones.
        told = f"gsm8k_apgr >= {length['apgr']:.3f}, length's on these rows (is {ours['apgr']:.3f})"
        met[told] = ours["apgr"] >= length["apgr"] - 1e-9
    p99 = report["milliseconds_at_400_tokens"].get("p99")
    if p99 is not None:
        met[f"p99_at_400_tokens < {LATENCY_GOAL_MS:g} ms (is {p99:.3f})"] = p99 < LATENCY_GOAL_MS
    return met


if __name__ == "__main__":
    sys.exit(main())
