"""Reading a request: the body within its limit, then the members that we need, exactly typed.

Nothing else of the body is looked at or changed (:mod:`gateway.dataplane.engine_body`).
"""

from __future__ import annotations

import re
import zlib
from typing import TypeVar

import msgspec

from gateway.dataplane.body_faults import (
    BYTE_ORDER_MARK,
    describe_json_fault,
    find_content_type_fault,
)
from gateway.dataplane.http.exchange import BodyOverLimitError, HttpExchange
from gateway.dataplane.http.head import RequestHeaders
from gateway.dataplane.integral_floats import find_integral
from gateway.errors import BodyTooLargeError, InvalidRequestError, shorten
from gateway.openai_schema.embedding_request import EmbeddingRequest
from gateway.openai_schema.requests import (
    ChatCompletionRequest,
    CompletionRequest,
    GenerationRequest,
)

_Request = ChatCompletionRequest | CompletionRequest | EmbeddingRequest
_DECODERS: dict[str, msgspec.json.Decoder[_Request]] = {
    "chat.completions": msgspec.json.Decoder(ChatCompletionRequest),
    "completions": msgspec.json.Decoder(CompletionRequest),
    "embeddings": msgspec.json.Decoder(EmbeddingRequest),
}
RequestT = TypeVar("RequestT")

_MOST_DIGITS = 20  # of 64 bits; Python takes no number of thousands of digits
_WANTS_INTEGER = "`int"  # in msgspec's words
# The one thing of a client's that msgspec repeats, up to the last quote.
_ECHOED = re.compile(r"(?<=^Invalid enum value ['\"]).*(?=['\"])", re.DOTALL)
_MEMBER = re.compile(r"at `\$\.([A-Za-z_]+)")
_MISSING = re.compile(r"missing required field `([a-z_]+)`")


class ByteOrderMarkError(InvalidRequestError):
    """The body begins with a byte order mark; what follows may be JSON all the same."""


async def read_body(exchange: HttpExchange, limit_bytes: int) -> bytes:
    """Return the request's body, unpacked if it was sent with gzip.

    Raises :class:`BodyTooLargeError` as soon as the limit is passed, :class:`InvalidRequestError`
    for another content type or encoding, and
    :class:`gateway.dataplane.http.exchange.ClientLeftError`.
    """
    headers = exchange.headers
    content_type = headers.get(b"content-type")
    if content_type is not None and content_type != b"application/json":
        fault = find_content_type_fault(content_type)
        if fault is not None:
            raise InvalidRequestError(fault, code="unsupported_content_type")
    try:
        if exchange.is_body_whole:
            body = exchange.take_body(limit_bytes)
        else:
            _check_length(headers, limit_bytes)
            body = await exchange.read_body(limit_bytes)
    except BodyOverLimitError:
        raise _too_large(limit_bytes) from None
    encoding = headers.get(b"content-encoding")
    return body if encoding is None else _unpack(body, encoding, limit_bytes)


def _check_length(headers: RequestHeaders, limit_bytes: int) -> None:
    """Refuse a body that is told to be too large before any of it is waited for."""
    length = headers.get(b"content-length")
    if length is None:
        return
    if len(length) > _MOST_DIGITS:  # all that the parser lets through, leading zeros included
        length = length.lstrip(b"0") or b"0"
    if int(length) > limit_bytes:
        raise _too_large(limit_bytes)


def parse_request(body: bytes, endpoint: str) -> GenerationRequest:
    """Return the members of ``body`` that we read.

    An integer may be written as a float without a fraction. Raises like :func:`decode_body`, and
    :class:`ByteOrderMarkError`: an engine may not take the mark.
    """
    decoder = _DECODERS[endpoint]
    try:
        return _decode(body, decoder)
    except InvalidRequestError as refusal:
        integral = find_integral(body) if _WANTS_INTEGER in refusal.message else None
        if integral is None:
            raise
    return _decode(integral, decoder)


def decode_body(body: bytes, decoder: msgspec.json.Decoder[RequestT]) -> RequestT:
    """Return what ``decoder`` makes of ``body``, without the byte order mark if it begins with one.

    Raises :class:`InvalidRequestError`, naming the member where one is at fault.
    """
    try:
        return _decode(body, decoder)
    except ByteOrderMarkError:
        return _decode(without_mark(body), decoder)


def without_mark(body: bytes) -> bytes:
    """Return the body without its byte order mark, which is no part of the JSON (RFC 8259)."""
    return body.removeprefix(BYTE_ORDER_MARK)


def _decode(body: bytes, decoder: msgspec.json.Decoder[RequestT]) -> RequestT:
    try:
        if not body.isascii():
            body.decode()  # members that are passed over must be text too, before anything is sent
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        text = _ECHOED.sub(lambda found: shorten(found[0]), str(error))
        member = _MEMBER.search(text) or _MISSING.search(text)
        param = None if member is None else member[1]
        raise InvalidRequestError(f"{text}.", param=param) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        is_marked = body.startswith(BYTE_ORDER_MARK)  # found here, where it costs others nothing
        refusal = ByteOrderMarkError if is_marked else InvalidRequestError
        raise refusal(describe_json_fault(body, error), code="malformed_json") from None
    except RecursionError:
        raise InvalidRequestError("The body is nested too deeply.", code="malformed_json") from None


def _unpack(body: bytes, encoding: bytes, limit_bytes: int) -> bytes:
    """Unpack gzip, never to more than the limit (a small body may hold gigabytes)."""
    if encoding.lower() == b"identity":
        return body
    if encoding.lower() != b"gzip":
        raise InvalidRequestError(
            "The content encoding must be gzip or none.", code="unsupported_content_encoding"
        )
    unpacker = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacker.decompress(body, limit_bytes + 1)
    except zlib.error:
        raise InvalidRequestError("The body is not valid gzip.", code="malformed_gzip") from None
    if len(unpacked) > limit_bytes:
        raise _too_large(limit_bytes)
    if not unpacker.eof or unpacker.unused_data:  # more behind it would be dropped unread
        raise InvalidRequestError("The body is not valid gzip.", code="malformed_gzip")
    return unpacked


def _too_large(limit_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"The body is over the limit of {limit_bytes} bytes.")
