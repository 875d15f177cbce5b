"""What is asked of the fleet: arrivals, lengths and beginnings, drawn from a seed.

Prompts exist as counts of tokens and as the names of their blocks; no text is made.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from zlib import crc32

from backends.simulated.kv_cache import BLOCK_TOKENS
from routing.prefix_index import BLOCK_ENDS

_ROUTER_BLOCK = 16  # engine blocks, 256 tokens: about a unit of routing.prefix_index
SYSTEM_PROMPTS = 20
_ZIPF_EXPONENT = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Its prompt's beginning has a name at each block, as an engine sees it."""

    arrives_at: float
    input_tokens: int
    output_tokens: int
    engine_blocks: tuple[int, ...]
    session: int | None = None

    @property
    def router_blocks(self) -> tuple[int, ...]:
        """The names that a router knows, which looks at larger blocks."""
        names = self.engine_blocks
        ends = [end * _ROUTER_BLOCK for end in BLOCK_ENDS]
        return tuple([names[end - 1] for end in ends if end <= len(names)])

    @property
    def home_key(self) -> int | None:
        """The hash of the first block that all workers share."""
        names = self.engine_blocks
        return crc32(b"%d" % names[_ROUTER_BLOCK - 1]) if len(names) >= _ROUTER_BLOCK else None


def shared_prefixes(rng: random.Random, requests: int, per_second: float) -> list[Request]:
    """Twenty system prompts of 1,000 to 6,000 tokens, a few of them popular; a question behind."""
    pick = _system_prompts(rng)
    drawn = []
    for number, at in enumerate(_poisson(rng, requests, per_second)):
        own = _log_normal(rng, median=300, sigma=1.0, low=16, high=8_000)
        output = _log_normal(rng, median=120, sigma=0.9, low=4, high=1_500)
        drawn.append(_request(at, pick(), own, output, owner=number))
    return drawn


def mixed_lengths(rng: random.Random, requests: int, per_second: float) -> list[Request]:
    """Nothing in common, and lengths that differ a hundredfold."""
    drawn = []
    for number, at in enumerate(_poisson(rng, requests, per_second)):
        own = _log_normal(rng, median=800, sigma=1.3, low=32, high=24_000)
        output = _log_normal(rng, median=120, sigma=1.2, low=4, high=3_000)
        drawn.append(_request(at, (0, 0), own, output, owner=number))
    return drawn


def conversations(rng: random.Random, requests: int, per_second: float) -> list[Request]:
    """Turn after turn: each prompt is the one before, its answer and a new question."""
    pick = _system_prompts(rng)
    turns = 6
    drawn: list[Request] = []
    starts = _poisson(rng, requests // turns, per_second / turns)
    for session, start in enumerate(starts):
        prompt = pick()
        at, own = start, 0
        for _ in range(turns):
            own += _log_normal(rng, median=150, sigma=1.0, low=16, high=8_000)
            output = _log_normal(rng, median=120, sigma=0.9, low=4, high=1_500)
            drawn.append(_request(at, prompt, own, output, owner=session, session=session))
            own += output
            at += 5.0 + rng.expovariate(1 / 15.0)
    return sorted(drawn, key=lambda request: request.arrives_at)


Workload = Callable[[random.Random, int, float], list[Request]]
WORKLOADS: dict[str, Workload] = {
    "shared_prefixes": shared_prefixes,
    "mixed_lengths": mixed_lengths,
    "conversations": conversations,
}


def _poisson(rng: random.Random, requests: int, per_second: float) -> list[float]:
    return list(accumulate(rng.expovariate(per_second) for _ in range(requests)))


def _log_normal(rng: random.Random, *, median: float, sigma: float, low: int, high: int) -> int:
    return max(low, min(high, int(median * rng.lognormvariate(0.0, sigma))))


def _system_prompts(rng: random.Random) -> Callable[[], tuple[int, int]]:
    """Return what draws a system prompt's number, from 1 on, and its length in tokens."""
    lengths = [rng.randint(1_000, 6_000) for _ in range(SYSTEM_PROMPTS)]
    weights = list(accumulate((rank + 1) ** -_ZIPF_EXPONENT for rank in range(SYSTEM_PROMPTS)))

    def pick() -> tuple[int, int]:
        (place,) = rng.choices(range(SYSTEM_PROMPTS), cum_weights=weights)
        return place + 1, lengths[place]

    return pick


def _request(
    at: float,
    system_prompt: tuple[int, int],
    own_tokens: int,
    output_tokens: int,
    *,
    owner: int,
    session: int | None = None,
) -> Request:
    """Name the blocks: those within the system prompt by it, the others by their owner."""
    system, system_tokens = system_prompt
    tokens = system_tokens + own_tokens
    shared = system_tokens // BLOCK_TOKENS
    blocks = tuple(
        hash((system, place)) if place < shared else hash((owner, system, place))
        for place in range(tokens // BLOCK_TOKENS)
    )
    return Request(at, tokens, output_tokens, blocks, session)
