"""The body that the engine gets: the client's own, with the model's name and stream options set.

Members are spliced as raw JSON, so that every value we do not set keeps its exact bytes (large
integers, ``1e-7``, escapes). A body in which nothing has to change goes on untouched.
"""

from __future__ import annotations

import msgspec

from gateway.dataplane.serving_table import ServedRoute
from gateway.errors import InvalidRequestError
from gateway.openai_schema.requests import GenerationRequest

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode

_USAGE_OPTIONS = msgspec.Raw(b'{"include_usage":true,"continuous_usage_stats":true}')
_TRUE = msgspec.Raw(b"true")


def engine_body(body: bytes, request: GenerationRequest, route: ServedRoute) -> bytes:
    """Return the bytes to send. Raises :class:`InvalidRequestError` for a body that is no object."""
    if not request.stream and route.rename is None:
        return body
    try:
        members = _decode_members(body)
        if route.rename is not None:
            members["model"] = msgspec.Raw(_encode(route.engine_model))
        if request.stream:
            members["stream_options"] = _stream_options(members.get("stream_options"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(
            f"The body is not valid JSON: {error}.", code="malformed_json"
        ) from None
    except RecursionError:  # it was read once, from a place with more room below it
        raise InvalidRequestError("The body is nested too deeply.", code="malformed_json") from None
    return _encode(members)


def _stream_options(given: msgspec.Raw | None) -> msgspec.Raw:
    """Ask for usage on every chunk; options that we do not know survive."""
    if given is None or bytes(given) == b"null":
        return _USAGE_OPTIONS
    options = _decode_members(given)
    options["include_usage"] = options["continuous_usage_stats"] = _TRUE
    return msgspec.Raw(_encode(options))
