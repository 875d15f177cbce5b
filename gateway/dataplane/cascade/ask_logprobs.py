"""The body with which a tier is asked for the log probabilities of its answer. Pure.

All other members keep their exact bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gateway.dataplane.shadow.shadow_body import has_one_answer
from gateway.openai_schema.requests import CompletionRequest, GenerationRequest

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_ABSENT = (None, b"null")
_OFF = (None, b"null", b"false")
_CHAT_WISH = msgspec.Raw(b"true")
_COMPLETION_WISH = msgspec.Raw(b"1")
# With these, what comes first is not one answer's own beginning.
_UNFIT = ("functions", "echo", "use_beam_search")


class AskedBody(NamedTuple):
    """What the engine gets."""

    body: bytes
    hides_logprobs: bool  # the client has not asked for them


def ask_logprobs(body: bytes, wanted: GenerationRequest) -> AskedBody | None:
    """Return the body; None where an answer's beginning would say nothing of it.

    That is with several choices or prompts, tools, an echo of the prompt, or a beam search.
    """
    if not has_one_answer(wanted) or getattr(wanted, "tools", None):
        return None
    members = {name: bytes(raw) for name, raw in _decode_members(body).items()}
    if any(members.get(name) not in _OFF for name in _UNFIT):
        return None
    if members.get("best_of") not in (*_ABSENT, b"1"):
        return None
    is_chat = not isinstance(wanted, CompletionRequest)
    asked = members.get("logprobs")
    if asked not in (_OFF if is_chat else _ABSENT):
        return AskedBody(body, hides_logprobs=False)
    if members.get("top_logprobs") not in (*_ABSENT, b"0"):
        return None  # without logprobs engines refuse it, and are to go on doing so
    raw = {name: msgspec.Raw(value) for name, value in members.items()}
    raw["logprobs"] = _CHAT_WISH if is_chat else _COMPLETION_WISH
    return AskedBody(_encode(raw), hides_logprobs=True)
