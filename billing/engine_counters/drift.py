"""Our token counts against the engine's own, and what may rightly differ. Pure.

The engine counts a token when it makes it, we count a request when it ends. So, without any fault:

- Requests that run over the beginning of a span: what they got before it is in our count alone.
- Requests that run over its end: what they got until then is in the engine's count alone.
- A client that leaves: the engine makes a few tokens more until it notices. vLLM has no
  ``request_success`` for it, but its tokens stay counted.
- Attempts that failed, and requests whose end nobody saw: the engine may have made, and counted, all
  of an answer that nobody is charged for.

An engine's counters do not tell its deployments apart (vLLM labels them with the base model, whichever
LoRA adapter was asked for), so those that share an engine are judged as one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from billing.engine_counters.span import hour_of

_ABORTED_OUTPUT_TOKENS = 32  # some steps; vLLM stops within 40 ms
_UNKNOWN_REQUEST_TOKENS = 4096  # of one still running, where none has ended to tell a mean


@dataclass(frozen=True, slots=True)
class Tokens:
    """Input and output of the same thing."""

    input: int = 0
    output: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        """Return both together."""
        return Tokens(self.input + other.input, self.output + other.output)

    def times(self, count: int) -> Tokens:
        """Return so many of it."""
        return Tokens(self.input * count, self.output * count)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanFigures:
    """One span of an engine, and those events of one of its replicas that ended in it."""

    engine_url: str
    deployment_id: str
    replica_id: str
    from_at: datetime
    to_at: datetime
    engine: Tokens  # of all its replicas, as are the next two
    engine_requests: int
    in_flight: int  # at the end, by the engine's word
    ours: Tokens  # of this replica, as is the rest
    requests: int
    aborted_requests: int  # the client left
    lost_requests: int  # failed attempts, and requests whose whole answer nobody saw
    over_beginning: Tokens  # of those that had begun before the span, whole
    over_end: Tokens  # of those that ended after it, whole


@dataclass(frozen=True, slots=True)
class DriftRule:
    """What counts as drift: more than both, beyond what may rightly differ."""

    share: float = 0.01  # of the larger count
    min_tokens: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Deployments that share their engines, mostly one, in one hour. Positive: the engines counted
    more than we did.

    ``input_excess`` and ``output_excess`` are what is left of the difference once all that may
    rightly differ is taken off.
    """

    deployment_ids: tuple[str, ...]  # in order
    hour: datetime
    replicas: int
    from_at: datetime
    to_at: datetime
    ours: Tokens
    engine: Tokens
    requests: int
    engine_requests: int
    input_excess: int
    output_excess: int
    is_over: bool

    @property
    def output_share(self) -> float:
        """The excess of output as a share of the larger count; 0 where nothing was made."""
        return self.output_excess / max(self.ours.output, self.engine.output, 1)

    @property
    def input_share(self) -> float:
        """The excess of input as a share of the larger count; 0 where nothing was read."""
        return self.input_excess / max(self.ours.input, self.engine.input, 1)


def compare_counts(spans: Iterable[SpanFigures], rule: DriftRule) -> Sequence[Drift]:
    """Return the drift of each hour and set of deployments, in the order of hours, then ids."""
    engines: dict[tuple[str, datetime, datetime], list[SpanFigures]] = defaultdict(list)
    for span in spans:
        engines[span.engine_url, span.from_at, span.to_at].append(span)
    groups: dict[tuple[datetime, tuple[str, ...]], list[_EngineSpan]] = defaultdict(list)
    for (_, _, to_at), parts in engines.items():
        one = _EngineSpan(tuple(parts))
        groups[hour_of(to_at), one.deployment_ids].append(one)
    return [_compare(key, group, rule) for key, group in sorted(groups.items())]


@dataclass(frozen=True, slots=True)
class _EngineSpan:
    """One span of an engine: its counters once, the events of all of its replicas together."""

    parts: tuple[SpanFigures, ...]

    @property
    def deployment_ids(self) -> tuple[str, ...]:
        return tuple(sorted({part.deployment_id for part in self.parts}))

    def add_up(self) -> SpanFigures:
        """Return it as if the engine were one replica."""
        parts = self.parts
        return replace(
            parts[0],
            ours=sum((part.ours for part in parts), Tokens()),
            requests=sum(part.requests for part in parts),
            aborted_requests=sum(part.aborted_requests for part in parts),
            lost_requests=sum(part.lost_requests for part in parts),
            over_beginning=sum((part.over_beginning for part in parts), Tokens()),
            over_end=sum((part.over_end for part in parts), Tokens()),
        )


def _compare(
    key: tuple[datetime, tuple[str, ...]], engines: Sequence[_EngineSpan], rule: DriftRule
) -> Drift:
    hour, deployment_ids = key
    spans = [engine.add_up() for engine in engines]
    ours = sum((span.ours for span in spans), Tokens())
    engine = sum((span.engine for span in spans), Tokens())
    below = sum((span.over_beginning for span in spans), Tokens())
    above = sum((_allow_above(span) for span in spans), Tokens())
    input_excess = _excess(engine.input - ours.input, below.input, above.input)
    output_excess = _excess(engine.output - ours.output, below.output, above.output)
    # More input than ours alone is no drift: a prompt counts once for each choice there.
    is_over = _is_over(-input_excess, max(engine.input, ours.input), rule) or _is_over(
        abs(output_excess), max(engine.output, ours.output), rule
    )
    return Drift(
        deployment_ids=deployment_ids,
        hour=hour,
        replicas=len({part.replica_id for one in engines for part in one.parts}),
        from_at=min(span.from_at for span in spans),
        to_at=max(span.to_at for span in spans),
        ours=ours,
        engine=engine,
        requests=sum(span.requests for span in spans),
        engine_requests=sum(span.engine_requests for span in spans),
        input_excess=input_excess,
        output_excess=output_excess,
        is_over=is_over,
    )


def _allow_above(span: SpanFigures) -> Tokens:
    """Return how much more than we the engine may rightly have counted."""
    mean = _mean_request(span)
    running = mean.times(span.in_flight)
    over_end = Tokens(
        max(span.over_end.input, running.input), max(span.over_end.output, running.output)
    )
    aborted = Tokens(mean.input, _ABORTED_OUTPUT_TOKENS).times(span.aborted_requests)
    return over_end + aborted + mean.times(span.lost_requests)


def _mean_request(span: SpanFigures) -> Tokens:
    """Return the tokens of a request there, rounded up."""
    if not span.requests:
        return Tokens(_UNKNOWN_REQUEST_TOKENS, _UNKNOWN_REQUEST_TOKENS)
    return Tokens(
        -(-span.ours.input // span.requests) or _UNKNOWN_REQUEST_TOKENS,
        -(-span.ours.output // span.requests) or _UNKNOWN_REQUEST_TOKENS,
    )


def _excess(difference: int, below: int, above: int) -> int:
    return max(difference - above, 0) + min(difference + below, 0)


def _is_over(excess: int, whole: int, rule: DriftRule) -> bool:
    return excess > rule.min_tokens and excess > rule.share * whole
