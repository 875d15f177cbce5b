"""Reads an engine's ``/v1/models``. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says it serves; None where it does not say."""

    context_tokens: int | None = None  # prompt and output together
    models: tuple[str, ...] = ()  # the names that it answers to, adapters left out
    adapters: tuple[str, ...] = ()  # LoRA adapters that it knows, ready or not

    def names_others_than(self, model: str) -> bool:
        """Say whether the engine lists names, and ``model`` is none of them, nor an adapter's."""
        listed = (*self.models, *self.adapters)
        return bool(listed) and model not in listed


class _Model(msgspec.Struct):
    id: str
    parent: Any = None  # an adapter's base model
    max_model_len: Any = None


class _ModelList(msgspec.Struct):
    data: list[_Model]


_decoder = msgspec.json.Decoder(_ModelList)


def parse_model_list(body: bytes) -> EngineFacts | None:
    """Return the facts; None for what is no model list."""
    try:
        found = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    lengths = [
        model.max_model_len
        for model in found.data
        if type(model.max_model_len) is int and 0 < model.max_model_len < 2**53
    ]
    return EngineFacts(
        context_tokens=min(lengths) if lengths else None,
        models=tuple(model.id for model in found.data if not isinstance(model.parent, str)),
        adapters=tuple(model.id for model in found.data if isinstance(model.parent, str)),
    )
