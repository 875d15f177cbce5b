"""The body with which another tier is asked: the client's own, without the stream. Pure."""

from __future__ import annotations

import msgspec

from gateway.openai_schema.requests import CompletionRequest, GenerationRequest

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_JSON_FORMS = (b'"json_object"', b'"json_schema"')


def shadow_body(body: bytes, wanted: GenerationRequest, engine_model: str) -> bytes:
    """Return the body for an engine that knows the model as ``engine_model``."""
    members = _decode_members(body)
    members["model"] = msgspec.Raw(_encode(engine_model))
    if wanted.stream is not None:
        members["stream"] = msgspec.Raw(b"false")
    members.pop("stream_options", None)
    return _encode(members)


def has_one_answer(wanted: GenerationRequest) -> bool:
    """Tell whether one answer is asked for, which is all that can be compared."""
    prompts = wanted.prompts if isinstance(wanted, CompletionRequest) else 1
    return (wanted.n or 1) == 1 and prompts == 1


def wants_json(wanted: GenerationRequest) -> bool:
    """Tell whether the answer is to be JSON."""
    form = getattr(wanted, "response_format", None)
    return form is not None and bytes(form.get("type", b"")) in _JSON_FORMS
