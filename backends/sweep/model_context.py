"""Whether the requests of a sweep fit the model: what its server tells, and what is asked. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from backends.sweep.errors import SweepError
from backends.sweep.lengths import Lengths

_MOST_TOO_LONG = 0.01  # of the requests; more, and no step is fit for a capacity profile


class _Model(msgspec.Struct):
    id: str
    max_model_len: Any = None


class _ModelList(msgspec.Struct):
    data: list[_Model]


_decoder = msgspec.json.Decoder(_ModelList)


def parse_context(body: bytes, model: str) -> int | None:
    """Return the tokens of a sequence that ``/v1/models`` tells of the model (vLLM's
    ``max_model_len``); None where it tells nothing."""
    try:
        listed = _decoder.decode(body).data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    told = [one.max_model_len for one in listed if one.id == model]
    return next((one for one in told if type(one) is int and one > 0), None)


def check_lengths(lengths: Lengths, context_tokens: int) -> None:
    """Do nothing if as good as all requests fit. Raises :class:`SweepError` with how many do not."""
    too_long = [
        pair for pair in lengths.pairs if pair.input_tokens + pair.output_tokens > context_tokens
    ]
    count = sum(pair.requests for pair in too_long)
    if count <= _MOST_TOO_LONG * lengths.requests:
        return
    longest = too_long[-1]
    which = (
        "the requests" if count == lengths.requests else f"{count / lengths.requests:.0%} of them"
    )
    raise SweepError(
        f"requests of {longest.input_tokens} tokens in and {longest.output_tokens} out do not fit "
        f"the model's context of {context_tokens} tokens: {which} would be refused"
    )
