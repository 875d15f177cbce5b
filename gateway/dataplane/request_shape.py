"""What a request asks of a replica, and what of its headers an engine gets."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from gateway.dataplane.estimate import Guess, make_guess, max_output_tokens
from gateway.openai_schema.embedding_request import EmbeddingRequest
from gateway.openai_schema.requests import ChatCompletionRequest
from routing.prefix_index import BLOCK_BYTES, MAX_BYTES, blocks_of
from routing.types import RequestShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.admit import Arrival
    from gateway.dataplane.fleet import Fleet
    from gateway.dataplane.http.head import RequestHeaders
    from gateway.dataplane.plane import DataPlane
    from gateway.openai_schema.requests import GenerationRequest
    from routing.load_view import LoadView

_TRACE_HEADERS = (b"traceparent", b"tracestate")
_SESSION_HEADER = b"x-forebay-session"
_NOTHING: frozenset[str] = frozenset()
_ANY = RequestShape(0, 0)  # where there is nothing to choose
_PROMPT_KEYS = (b'"messages"', b'"prompt"')
_IMAGE_MARKS = (b'"image_url"', b'"input_image"')


class _Message(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw()


class _Messages(msgspec.Struct):
    messages: list[_Message]


_decode_messages = msgspec.json.Decoder(_Messages).decode


def shape_of(
    plane: DataPlane, arrival: Arrival, request: ActiveRequest, headers: RequestHeaders
) -> RequestShape:
    """Return what the choice among replicas of ``request.route`` goes by."""
    fleet = request.route.fleet
    is_one = len(fleet.views) == 1
    if is_one and not fleet.has_capabilities:
        return _ANY
    needs = _needs_of(arrival) if fleet.has_capabilities else _NOTHING
    if is_one and needs.issubset(fleet.views[0].features or _NOTHING):
        return _ANY
    guess = request.guess
    if guess is None:
        kind = plane.estimator.kind_of(arrival.caller.lineage, request.route.route.id)
        guess = request.guess = make_guess(kind, arrival.wanted, arrival.body)
    adapters = fleet.deployment.capabilities.adapters
    engine_model = request.route.engine_model
    adapter = engine_model if adapters is not None and engine_model in adapters else None
    prompt = b"" if is_one else _beginning_of(arrival.body)
    session = None if is_one else _session_of(arrival, headers)
    salt = b"" if adapter is None else adapter.encode()
    return RequestShape(
        guess.input_tokens,
        guess.output_tokens,
        needs=needs,
        adapter=adapter,
        session=None if session is None else hash(session),
        session_key=None if session is None else crc32(session),
        blocks=blocks_of(prompt, salt=hash(salt)) if prompt else (),
        prompt_bytes=len(arrival.body),
        home_key=crc32(prompt[:BLOCK_BYTES], crc32(salt)) if prompt else None,
        asked_tokens=_asked_tokens(guess, arrival.wanted, fleet.views),
    )


def demands_of(arrival: Arrival, guess: Guess, fleets: Sequence[Fleet]) -> RequestShape:
    """Return what any replica must be able to do and hold, whichever of ``fleets`` it is in."""
    views = [view for fleet in fleets for view in fleet.views]
    return RequestShape(
        guess.input_tokens,
        guess.output_tokens,
        needs=_needs_of(arrival),
        asked_tokens=_asked_tokens(guess, arrival.wanted, views),
    )


def names_session(headers: RequestHeaders) -> bool:
    """Tell whether the client names the conversation by our header."""
    return bool(headers.get(_SESSION_HEADER))


def session_name(headers: RequestHeaders, wanted: GenerationRequest) -> bytes | str | None:
    """Return what a client calls its conversation: our header, else OpenAI's ``user``."""
    return headers.get(_SESSION_HEADER) or wanted.user


def trace_lines(headers: RequestHeaders) -> bytes:
    """Return the W3C trace context as header lines; no other client header reaches an engine."""
    lines = b""
    if b"traceparent" not in headers:
        return lines  # without it the other says nothing (W3C Trace Context, section 3.3)
    for name in _TRACE_HEADERS:
        value = headers.get(name)
        if value is not None and value.isascii() and value.decode().isprintable():
            lines += b"%b: %b\r\n" % (name, value)
    return lines


def _asked_tokens(guess: Guess, wanted: GenerationRequest, views: Sequence[LoadView]) -> int:
    """Return the output that a replica must have room for, as the client bounds it; 0: no bound.

    An engine cuts what does not fit without a word. Many clients ask for more than any engine has:
    the longest then makes as much of it as can be. Below 0 for prompts to embed (RequestShape).
    """
    limit = max_output_tokens(wanted)
    if limit is None or limit <= guess.output_tokens:
        is_embedding = not guess.output_tokens and isinstance(wanted, EmbeddingRequest)
        return guess.longest_tokens - guess.input_tokens if is_embedding else limit or 0
    longest = max([view.context_tokens or 0 for view in views], default=0)
    return min(limit, max(longest - guess.input_tokens, guess.output_tokens))


def _needs_of(arrival: Arrival) -> frozenset[str]:
    wanted = arrival.wanted
    needs = ["completions"]
    if isinstance(wanted, ChatCompletionRequest):
        needs = ["chat"]
        if wanted.tools and bytes(wanted.tool_choice) != b'"none"':
            needs.append("tools")
        form = wanted.response_format
        if form is not None and bytes(form.get("type", b"")) == b'"json_schema"':
            needs.append("json_schema")
        if has_image(arrival.body):
            needs.append("vision")
    elif isinstance(wanted, EmbeddingRequest):
        needs = ["embeddings"]
    return frozenset(needs)


def has_image(body: bytes) -> bool:
    """Tell whether a chat's messages hold an image; a tool's parameter may have the same name."""
    if not any(mark in body for mark in _IMAGE_MARKS):
        return False
    contents = [bytes(message.content) for message in _decode_messages(body).messages]
    return any(mark in content for content in contents for mark in _IMAGE_MARKS)


def _session_of(arrival: Arrival, headers: RequestHeaders) -> bytes | None:
    """Return what names the conversation: our header, else OpenAI's ``user``; by key."""
    named = session_name(headers, arrival.wanted)
    if not named:
        return None
    name = named.encode() if isinstance(named, str) else named
    return b"%b %b" % (arrival.caller.lineage.encode(), name)


def _beginning_of(body: bytes) -> bytes:
    """Return the prompt's first bytes, from where it begins in the body; none of a small one.

    What follows it there (other members) can only be in the last block.
    """
    if len(body) < BLOCK_BYTES:
        return b""
    starts = [start for key in _PROMPT_KEYS if (start := body.find(key)) >= 0]
    if not starts:
        return b""
    start = min(starts)
    beginning = body[start : start + MAX_BYTES]
    return beginning if len(beginning) >= BLOCK_BYTES else b""
