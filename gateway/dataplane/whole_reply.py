"""Step 5 for whole answers: meter, rename, and say what it cost."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from stringzilla import find

from backends.errors import MalformedReplyError, ReplyTooLargeError
from billing.usage.event import RequestStatus, TokenUsage
from gateway.dataplane.active_request import ActiveRequest
from gateway.dataplane.answer import JSON_TYPE, WholeAnswer
from gateway.dataplane.engine_errors import engine_error, lacks_endpoint, stream_error
from gateway.dataplane.told_errors import read_error_detail, tells_error
from gateway.errors import ApiError, InvalidRequestError
from gateway.openai_schema.replies import RepliedChoices, Reply

if TYPE_CHECKING:
    from backends.engine_connection import EngineConnection
    from gateway.dataplane.serving_table import ServedRoute
    from gateway.snapshot.model import ApiKeyEntry

_decode_reply = msgspec.json.Decoder(Reply).decode
_decode_choices = msgspec.json.Decoder(RepliedChoices).decode
_GZIP_OR_ZLIB = 47  # zlib's wbits: 15, and 32 to tell the two formats apart by their header


def whole_answer(
    request: ActiveRequest,
    connection: EngineConnection,
    body: bytes,
    *,
    route: ServedRoute,
    caller: ApiKeyEntry,
    limit_bytes: int,
    count: Callable[[bytes], TokenUsage] | None = None,
) -> WholeAnswer:
    """Return the client's answer to the engine's whole ``body`` and conclude the request.

    ``count`` reads the counts in the place of :func:`read_usage`. Raises :class:`ApiError` for an engine's refusal or failure (concluded too), and
    :class:`BackendError` when the reply is no JSON.
    """
    encoding = connection.headers.get(b"content-encoding")
    if encoding is not None and encoding.lower() != b"identity":
        body = _unpack(body, encoding.lower(), limit_bytes)  # we asked for none; some do it anyway
    status = connection.status
    if status != 200:
        if _knows_model(request) and lacks_endpoint(status, body, route):
            error: ApiError = _no_such_endpoint(request)
        else:
            error = engine_error(status, body, connection.headers, route)
        is_refusal = error.status < 500
        request.conclude(
            RequestStatus.REJECTED if is_refusal else RequestStatus.FAILED,
            error.status,
            error_code=error.code,
        )
        raise error
    usage = read_usage(body) if count is None else count(body)
    if find(body, b'"error"') >= 0 and tells_error(body):  # with status 200, as some routers do
        meaning = stream_error(read_error_detail(body), route)
        request.conclude(meaning.status, meaning.error.status, error_code=meaning.error.code)
        raise meaning.error
    request.conclude(RequestStatus.COMPLETED, 200, usage=usage)
    if request.guess is not None and request.guess.has_several:
        request.guess.cut_off = count_cut_off(body)
    if route.rename is not None:
        body = route.rename.apply(body)
    headers = JSON_TYPE
    if request.reservation is not None:
        price = request.reservation.price
    else:
        price = route.find_price(caller.price_book_id, request.identity.started_at_us)
    charge = None if price is None else price.find_text(usage)
    if price is not None and charge is not None:  # a hint; the receipt is the proof
        headers += b"x-forebay-charge: %b\r\nx-forebay-currency: %b\r\n" % (
            charge.encode(),
            price.currency.encode(),
        )
    return WholeAnswer(200, body, headers)


def plain_body(connection: EngineConnection, body: bytes, limit_bytes: int) -> bytes:
    """Return a reply's body without its encoding, of which its headers then say nothing.

    Raises :class:`BackendError` for one that we cannot take off.
    """
    encoding = connection.headers.pop(b"content-encoding", b"identity").lower()
    return body if encoding == b"identity" else _unpack(body, encoding, limit_bytes)


def _knows_model(request: ActiveRequest) -> bool:
    """Tell whether the engine has listed the model to us, so that we ask it at the right address."""
    watch = None if request.replica is None else request.replica.watch
    facts = None if watch is None else watch.facts
    return facts is not None and request.route.engine_model in facts.models


def _no_such_endpoint(request: ActiveRequest) -> ApiError:
    name, endpoint = request.route.asked.name, request.identity.endpoint
    return InvalidRequestError(
        f"The engine of {name!r} does not serve {endpoint}.",
        code="unsupported_by_model",
        param="model",
    )


def read_usage(body: bytes) -> TokenUsage:
    """Return the reply's counts; raise when the reply is no JSON object."""
    try:
        usage = _decode_reply(body).usage
    except msgspec.ValidationError:
        if body.lstrip()[:1] != b"{":
            raise MalformedReplyError("The engine's reply is no JSON object.") from None
        return TokenUsage()  # counts that are no integers are no counts
    except (msgspec.DecodeError, RecursionError):
        raise MalformedReplyError("The engine's reply is not valid JSON.") from None
    return TokenUsage() if usage is None else usage.to_token_usage()


def count_cut_off(body: bytes) -> int | None:
    """Return how many choices ``max_tokens`` or the context has ended; None: it is not told."""
    try:
        choices = _decode_choices(body).choices
    except (msgspec.DecodeError, RecursionError):
        return None
    if not choices or any(not choice.finish_reason for choice in choices):
        return None
    return sum(choice.finish_reason == "length" for choice in choices)


def _unpack(body: bytes, encoding: bytes, limit_bytes: int) -> bytes:
    if encoding not in (b"gzip", b"deflate"):
        raise MalformedReplyError("The engine's reply has an encoding that we did not ask for.")
    unpacker = zlib.decompressobj(wbits=_GZIP_OR_ZLIB)
    try:
        unpacked = unpacker.decompress(body, limit_bytes + 1)
    except zlib.error:
        raise MalformedReplyError("The engine's reply is not what its encoding says.") from None
    if len(unpacked) > limit_bytes:
        raise ReplyTooLargeError(f"The engine's reply is over {limit_bytes} bytes.")
    return unpacked
