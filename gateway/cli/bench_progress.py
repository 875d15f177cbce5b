"""How a sweep goes, on stderr: a bar for people, a line a step otherwise."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backends.sweep.sweep import Step, SweepPlan


class LineProgress:
    """A line for each step that is measured."""

    def __init__(self, plan: SweepPlan) -> None:
        self._unit = "requests/s" if plan.is_open else "clients"

    def begin_step(self, number: int, load: float) -> None:
        """Say nothing: the line comes when there are figures."""

    def tick(self, share: float, per_second: float, p95_ms: float | None, under_way: int) -> None:
        """Say nothing."""

    def end_step(self, step: Step) -> None:
        """Write the line."""
        print(describe_step(step, self._unit), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Nothing is left on the screen."""


class BarProgress:
    """A bar for the present step, and a line above it for each that is measured. Needs rich."""

    def __init__(self, plan: SweepPlan) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._unit = "requests/s" if plan.is_open else "clients"
        self._all = len(plan.loads)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,  # its thread would take the interpreter from the measurement
        )
        self._task: Any = self._bar.add_task("prepares", total=1.0, figures="")
        self._bar.start()

    def begin_step(self, number: int, load: float) -> None:
        """Show which load is taken up."""
        of = f" of at most {self._all}" if number <= self._all else ", near the knee"
        self._show(f"step {number}{of}: {load:g} {self._unit}", 0.0, "warms up")

    def tick(self, share: float, per_second: float, p95_ms: float | None, under_way: int) -> None:
        """Show what the window gave so far."""
        p95 = "-" if p95_ms is None else f"{p95_ms:.0f} ms"
        self._show(None, share, f"{per_second:.1f} requests/s, p95 {p95}, {under_way} under way")

    def end_step(self, step: Step) -> None:
        """Leave a line above the bar."""
        self._bar.console.print(describe_step(step, self._unit), markup=False, highlight=False)

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()

    def _show(self, description: str | None, share: float, figures: str) -> None:
        changed: dict[str, Any] = {} if description is None else {"description": description}
        self._bar.update(self._task, completed=min(share, 1.0), figures=figures, **changed)
        self._bar.refresh()


def make_progress(plan: SweepPlan) -> LineProgress | BarProgress:
    """Return a bar where a person watches and rich is installed, else lines."""
    from importlib.util import find_spec

    if sys.stderr.isatty() and find_spec("rich") is not None:
        return BarProgress(plan)
    return LineProgress(plan)


def describe_step(step: Step, unit: str) -> str:
    """Return a step in a line."""
    figures = step.figures
    spans = ", ".join(
        f"{figure.removesuffix('_ms').upper()} {figures.latencies[figure]['p95'].value:.0f}"
        for figure in ("ttft_ms", "tpot_ms", "e2e_ms")
        if figure in figures.latencies
    )
    failed = figures.requests - figures.completed
    return (
        f"{step.load:g} {unit}: {figures.rates.requests.value:.2f} requests/s, "
        f"{figures.rates.output_tokens.value:.0f} output tokens/s; p95 in ms: {spans or '-'}"
        f"{f'; {failed} failed' if failed else ''}"
        f"{f'; CLIENT: {step.client_fault}' if step.client_fault else ''}"
        f"{'; over-saturated' if step.is_over_saturated else ''}"
    )
