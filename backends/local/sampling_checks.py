"""A request's parameters to :class:`Sampling`, refused where vLLM refuses them, in its words."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Any

import msgspec

from backends.local.errors import ApiError, InvalidValueError, UnsupportedError
from backends.local.messages import Sampling
from backends.local.request_schema import ChatRequest, GenerationRequest
from backends.local.structured_output import find_wanted_form

MAX_CHOICES = 128
MAX_SEQUENCES = 1024  # of one request: its prompts are made into tokens between two steps
MAX_STOP_STRINGS = 4
_SEED_MASK = (1 << 64) - 1
_MAX_INT = (1 << 31) - 1  # what the engine's own integers surely hold


@dataclass(frozen=True)
class Range:
    """Where a number may lie, and how vLLM says that it does not."""

    low: float
    high: float
    problem: str
    is_low_excluded: bool = False
    high_problem: str = ""  # where ``problem`` speaks of the lower end alone

    def find_problem(self, value: float) -> str | None:
        """Return what is wrong with ``value``, None if it is in range; NaN never is."""
        if value > self.high and self.high_problem:
            return self.high_problem
        above = value > self.low if self.is_low_excluded else value >= self.low
        return None if above and value <= self.high else self.problem


_RANGES = {
    "temperature": Range(0.0, 2.0, "temperature must be in [0, 2]"),
    "top_p": Range(0.0, 1.0, "top_p must be in (0, 1]", is_low_excluded=True),
    "min_p": Range(0.0, 1.0, "min_p must be in [0, 1]"),
    "presence_penalty": Range(-2.0, 2.0, "presence_penalty must be in [-2, 2]"),
    "frequency_penalty": Range(-2.0, 2.0, "frequency_penalty must be in [-2, 2]"),
    "repetition_penalty": Range(
        *(0.0, 1e6, "repetition_penalty must be greater than zero"),
        is_low_excluded=True,
        high_problem="repetition_penalty must be at most 1000000",
    ),
    "top_k": Range(
        *(-1, _MAX_INT, "top_k must be 0 (disable), or at least 1"),
        high_problem=f"top_k must be at most {_MAX_INT}",
    ),
    # How many tokens at most is for the context to say.
    "min_tokens": Range(0, math.inf, "min_tokens must be greater than or equal to 0"),
    "max_tokens": Range(1, math.inf, "max_tokens must be at least 1"),
}


def get_choice_count(request: GenerationRequest) -> int:
    """Return ``n``. Raises :class:`ApiError` 400."""
    count = 1 if request.n is None else request.n
    if count < 1:
        raise ApiError(400, f"n must be at least 1, got {count}.")
    if count > MAX_CHOICES:
        raise InvalidValueError("n", f"n must be at most {MAX_CHOICES}, got {count}.", count)
    return count


def check_sequence_count(prompts: int, choices: int) -> None:
    """Raises :class:`ApiError` 400 when a request is for more texts than one may be."""
    count = prompts * choices
    if count > MAX_SEQUENCES:
        problem = f"n times the number of prompts must be at most {MAX_SEQUENCES}, got {count}."
        raise InvalidValueError("n", problem, choices)


def chat_limit(request: ChatRequest) -> tuple[str, int | None]:
    """Return the member that bounds the output, of two the lower, and its tokens; None: none."""
    old, new = request.max_tokens, request.max_completion_tokens
    if new is not None and (old is None or new < old):
        return "max_completion_tokens", new
    return "max_tokens", old


def get_sampling(
    request: GenerationRequest,
    max_tokens: int | None,
    context_tokens: int,
    *,
    limit_member: str = "max_tokens",
) -> Sampling:
    """Return how the request wants its text. Raises :class:`ApiError` 400.

    ``max_tokens``: the limit that counts for the endpoint, None for the rest of the context;
    ``limit_member``: the member of the body that has it.
    """
    _check_ranges(request, max_tokens, limit_member)
    _check_unsupported(request)
    min_tokens = request.min_tokens or 0
    if max_tokens is not None and max_tokens > context_tokens:
        problem = (
            f"{limit_member}={max_tokens} cannot be greater than max_model_len={context_tokens}. "
            "Please request fewer output tokens."
        )
        raise InvalidValueError(limit_member, problem, max_tokens)
    if min_tokens > context_tokens:
        problem = f"min_tokens={min_tokens} cannot be greater than max_model_len={context_tokens}."
        raise InvalidValueError("min_tokens", problem, min_tokens)
    if max_tokens is not None and min_tokens > max_tokens:
        problem = (
            f"min_tokens must be less than or equal to {limit_member}={max_tokens},"
            f" got {min_tokens}."
        )
        raise InvalidValueError("min_tokens", problem, min_tokens)
    seed = secrets.randbits(63) if request.seed is None else request.seed
    given = {
        name: value
        for name in _RANGES
        if name not in {"max_tokens", "min_tokens"}
        and (value := getattr(request, name)) is not None
    }
    return Sampling(
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        seed=seed & _SEED_MASK,
        is_eos_ignored=request.ignore_eos,
        stop_strings=_stop_strings(request),
        is_stop_string_kept=request.include_stop_str_in_output,
        stop_token_ids=tuple(request.stop_token_ids or ()),
        **_grammar(request),
        **given,
    )


def with_choice_seed(sampling: Sampling, choice: int) -> Sampling:
    """Return the sampling of choice number ``choice`` of one prompt: each draws differently."""
    return msgspec.structs.replace(sampling, seed=(sampling.seed + choice) & _SEED_MASK)


def _check_ranges(request: GenerationRequest, max_tokens: int | None, limit_member: str) -> None:
    for name, allowed in _RANGES.items():
        is_limit = name == "max_tokens"
        value = max_tokens if is_limit else getattr(request, name)
        problem = None if value is None else allowed.find_problem(value)
        if problem is not None:
            member = limit_member if is_limit else name
            raise InvalidValueError(member, f"{problem.replace(name, member)}, got {value}.", value)


def _check_unsupported(request: GenerationRequest) -> None:
    if request.logit_bias:
        raise UnsupportedError("logit_bias", "logit_bias")


def _stop_strings(request: GenerationRequest) -> tuple[str, ...]:
    stop = request.stop
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(strings) > MAX_STOP_STRINGS:
        problem = f"stop must have at most {MAX_STOP_STRINGS} items, got {len(strings)}."
        raise InvalidValueError("stop", problem, len(strings))
    if "" in strings:
        raise ApiError(400, "stop cannot contain an empty string.", param="stop")
    return strings


def _grammar(request: GenerationRequest) -> dict[str, Any]:
    form = find_wanted_form(request)
    if form is None:
        return {}
    return {
        "json_schema": form.json_schema,
        "grammar_cost_ms": form.cost_ms,
        "grammar_member": form.member,
    }
