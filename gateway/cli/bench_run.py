"""Runs one sweep and writes its files after every step, so that none of it is lost."""

from __future__ import annotations

import asyncio
import random
import resource
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer
import uvloop

from backends.sweep.calibrate import calibrate
from backends.sweep.engine_target import EngineTarget
from backends.sweep.errors import SweepError
from backends.sweep.lengths import Lengths
from backends.sweep.model_context import check_lengths, parse_context
from backends.sweep.prompts import Calibration, PromptWriter
from backends.sweep.report import write_capacity, write_report
from backends.sweep.request_body import AskedModel, deal_asks
from backends.sweep.sweep import Step, Sweep, SweepPlan
from billing.clock import utc_now
from gateway.cli.bench_files import (
    CAPACITY,
    PLOT,
    REPORT,
    make_directory,
    write_json,
    write_whole,
)
from gateway.cli.bench_progress import BarProgress, LineProgress, make_progress
from gateway.cli.plot_sweep import draw_sweep

_EXIT_INTERRUPTED = 130
_CLOSING_SECONDS = 0.01  # a loop that is closed over open connections may wait for them for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is measured, and where it goes."""

    url: str
    model: str
    is_chat: bool
    secret: str | None
    plan: SweepPlan
    lengths: Lengths
    shared_prefix: float  # share of the mean input
    reuses_prompts: bool
    timeout_seconds: float
    profile_name: str
    gpus: int
    directory: Path


def run_job(job: Job) -> dict[str, Any]:
    """Measure and write; return the report.

    Raises SweepError and CliError. Interrupted, it says what was kept and exits with 130.
    """
    _allow_connections()
    run = _Run(job)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run.measure())
    except KeyboardInterrupt:
        run.close()
        kept = 0 if run.sweep is None else len(run.sweep.result.steps)
        if not kept:
            raise
        print(
            f"forebay: interrupted; {kept} finished step(s) are in {job.directory}", file=sys.stderr
        )
        raise typer.Exit(_EXIT_INTERRUPTED) from None
    finally:
        run.close()
    return run.write()


def _allow_connections() -> None:
    """Thousands of requests under way need more files than shells allow at first."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Run:
    """A sweep on its way; it is the sweep's own progress, and passes it on."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._began_at = utc_now()
        self._calibration: Calibration | None = None
        self._shown: LineProgress | BarProgress = make_progress(job.plan)
        self.sweep: Sweep | None = None

    async def measure(self) -> None:
        """Calibrate and sweep. Raises SweepError."""
        job = self._job
        target = EngineTarget(
            job.url,
            secret=job.secret,
            is_chat=job.is_chat,
            timeout_seconds=job.timeout_seconds,
            clock=time.perf_counter,
        )
        try:
            await self._sweep(target)
        finally:
            target.close()
            await asyncio.sleep(_CLOSING_SECONDS)

    async def _sweep(self, target: EngineTarget) -> None:
        job, clock = self._job, time.perf_counter
        endpoint = AskedModel(job.model, is_chat=job.is_chat)
        run = job.plan.seed if job.reuses_prompts else random.SystemRandom().getrandbits(24)
        self._calibration = await calibrate(target, endpoint, run=run, clock=clock)
        if (models := await target.find_models()) is not None:
            context = parse_context(models, job.model)
            if context is not None:
                check_lengths(job.lengths, context)
        make_directory(job.directory)  # a target that cannot be measured leaves none
        writer = PromptWriter(
            self._calibration,
            seed=job.plan.seed,
            run=run,
            shared_tokens=job.shared_prefix * job.lengths.mean_input,
        )
        asks = deal_asks(
            endpoint,
            job.lengths,
            writer,
            random.Random(job.plan.seed),  # noqa: S311 - no secret
            ignores_eos=self._calibration.ignores_eos,
        )
        self.sweep = Sweep(job.plan, target, asks, clock=clock, progress=self)
        await self.sweep.run()

    def begin_step(self, number: int, load: float) -> None:
        """A load is taken up."""
        self._shown.begin_step(number, load)

    def tick(self, share: float, per_second: float, p95_ms: float | None, under_way: int) -> None:
        """The window goes on."""
        self._shown.tick(share, per_second, p95_ms, under_way)

    def end_step(self, step: Step) -> None:
        """A step is measured: what is known so far is written."""
        self._shown.end_step(step)
        self.write()

    def close(self) -> None:
        """Show nothing any more."""
        self._shown.close()

    def write(self) -> dict[str, Any]:
        """Write the files of the finished steps, and return the report. Raises CliError."""
        if self.sweep is None:
            raise SweepError("nothing was measured")
        directory = self._job.directory
        report = write_report(self.sweep.result, self._about())
        write_json(directory / REPORT, report)
        if report["steps"]:
            write_whole(directory / PLOT, draw_sweep(report))
        with suppress(SweepError):  # no step is fit for it; the report says why of each
            profile = write_capacity([report], name=self._job.profile_name, gpus=self._job.gpus)
            write_json(directory / CAPACITY, profile)
        return report

    def _about(self) -> dict[str, Any]:
        job, calibration = self._job, self._calibration
        parts = urlsplit(job.url)
        authority = parts.netloc.rpartition("@")[2]
        return {
            "began_at": self._began_at.isoformat(),
            "written_at": utc_now().isoformat(),
            "target": {
                "base_url": f"{parts.scheme}://{authority}{parts.path}",  # without a secret
                "endpoint": "chat/completions" if job.is_chat else "completions",
                "model": job.model,
                "gpus": job.gpus,
            },
            "workload": {
                "requests": job.lengths.requests,
                "mean_input_tokens": round(job.lengths.mean_input, 2),
                "mean_output_tokens": round(job.lengths.mean_output, 2),
                "shared_prefix": job.shared_prefix,
                "reuses_prompts": job.reuses_prompts,
                "timeout_seconds": job.timeout_seconds,
            },
            "calibration": None
            if calibration is None
            else {
                "tokens_per_word": round(calibration.tokens_per_word, 4),
                "overhead_tokens": round(calibration.overhead_tokens, 2),
                "ignores_eos": calibration.ignores_eos,
            },
        }
