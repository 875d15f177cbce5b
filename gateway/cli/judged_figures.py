"""How the figures of ``forebay router evaluate`` are shown: two tables, and what has to be said of them."""

from __future__ import annotations

from typing import Any

from gateway.cli.output import Columns, print_table

_ROUTERS: Columns = (
    ("DATASET", "dataset"),
    ("ROUTER", "router"),
    ("APGR", "apgr"),
    ("95 %", "interval"),
    ("CPT50", "cpt50"),
    ("CPT80", "cpt80"),
)
_DATASETS: Columns = (
    ("DATASET", "dataset"),
    ("PROMPTS", "prompts"),
    ("ALL SMALL", "small"),
    ("ALL LARGE", "large"),
    ("ORACLE", "oracle"),
    ("WEIGHTS", "weights"),
    ("IN DOMAIN", "in_domain"),
    ("ENTROPY", "entropy"),
    ("CPU MS P50", "p50"),
    ("P99", "p99"),
)


def print_figures(report: dict[str, Any]) -> None:
    """Print what the routers are worth, then each dataset's own figures, then what limits them."""
    report = show_together(report)
    print_table(
        list_routers(report), _ROUTERS, empty="no dataset in which the large model is better"
    )
    print()
    print_table(list_datasets(report), _DATASETS, empty="no rows")
    for line in list_remarks(report):
        print(line)


def show_together(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report with datasets that were judged together as one, in the place of each alone."""
    together = report.get("together", {})
    hidden = {name for entry in together.values() for name in entry["datasets"]}
    kept = {name: entry for name, entry in report["datasets"].items() if name not in hidden}
    return {**report, "datasets": {**kept, **together}}


def list_routers(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the first table's lines: one a dataset and router."""
    lines: list[dict[str, Any]] = []
    for dataset, entry in report["datasets"].items():
        for router, figures in entry["routers"].items():
            interval = figures["intervals"].get("apgr")
            lines.append(
                {
                    "dataset": dataset,
                    "router": router,
                    "apgr": f"{figures['apgr']:.3f}",
                    "interval": f"{interval[0]:.3f}..{interval[1]:.3f}" if interval else "",
                    "cpt50": f"{figures['cpt50']:.1f}",
                    "cpt80": f"{figures['cpt80']:.1f}",
                }
            )
    return lines


def list_datasets(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the second table's lines, one a dataset; qualities are means of scores within 0..1."""
    return [
        {
            "dataset": dataset,
            "prompts": entry["prompts"],
            "small": f"{entry['fixed_models']['small']:.3f}",
            "large": f"{entry['fixed_models']['large']:.3f}",
            "oracle": f"{entry['oracle_quality']:.3f}",
            "weights": entry["weights"]["name"],
            "in_domain": f"{entry['in_domain_share']:.1%}",
            "entropy": f"{entry['entropy']:.2f}",
            "p50": f"{entry['milliseconds']['p50']:.3f}",
            "p99": f"{entry['milliseconds']['p99']:.3f}",
        }
        for dataset, entry in report["datasets"].items()
    ]


def list_remarks(report: dict[str, Any]) -> list[str]:
    """Return what the figures do not tell by themselves, a sentence each."""
    remarks: list[str] = []
    for dataset, entry in report["datasets"].items():
        name = entry["weights"]["name"]
        if "datasets" in entry:
            remarks.append(
                f"{dataset}: too few prompts each to be judged alone (the report has them):"
                f" {', '.join(entry['datasets'])}"
            )
        if not entry["weights"]["learned_from"]:
            remarks.append(
                f"{dataset}: {name} learned nothing; its figures are the length rule's alone"
            )
        if not entry["entropy"]:
            remarks.append(f"{dataset}: {name} is a constant: all prompts have the same score")
        if entry["prompts_of_train"]:
            remarks.append(
                f"{dataset}: {entry['prompts_of_train']} of its {entry['prompts']} prompts stand in"
                " rows of train; weights trained on those look better here than they are"
            )
        if "note" in entry:
            remarks.append(f"{dataset}: {entry['note']}")
    return remarks
