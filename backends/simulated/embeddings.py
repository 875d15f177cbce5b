"""``/v1/embeddings``: the time of reading the prompts, and vectors that mean nothing."""

from __future__ import annotations

import base64
import random
import struct
from functools import partial
from typing import Any, Literal

import msgspec

from backends.local.errors import ApiError, InvalidValueError, UnknownModelError
from backends.simulated.answer import BUSY, Engine
from backends.simulated.batch import Sequence
from backends.simulated.exchange import Client, error_reply
from backends.simulated.prompt import Prompt, prompts_of

_MAX_DIMENSIONS = 8192
_encode = msgspec.json.Encoder().encode


class _Body(msgspec.Struct):
    input: Any
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


_decode = msgspec.json.Decoder(_Body).decode


def _vector(prompt: Prompt, place: int, dimensions: int) -> list[float]:
    """Return small numbers that depend on the prompt's length and place alone."""
    draw = random.Random(prompt.tokens * 1000 + place).uniform  # noqa: S311 - no secret
    return [round(draw(-1e-3, 1e-3), 7) for _ in range(dimensions)]


class EmbeddingAnswer:
    """A request for embeddings on its way; :meth:`abort` when its client left."""

    def __init__(self, engine: Engine, client: Client) -> None:
        self._engine = engine
        self._client = client
        self._left = 0
        self._sequences: list[Sequence] = []

    def start(self, raw: bytes) -> None:
        """Begin."""
        try:
            body, prompts = self._read(raw)
        except ApiError as error:
            error_reply(self._client, error)
            return
        self._left = len(prompts)
        finish = partial(self._on_read, body, prompts)
        self._sequences = [Sequence(one.tokens, 0, finish, one.blocks) for one in prompts]
        for sequence in self._sequences:
            self._engine.clock.submit(sequence)

    def abort(self) -> None:
        """Free its places in the batch at once."""
        for sequence in self._sequences:
            self._engine.batch.remove(sequence)

    def _read(self, raw: bytes) -> tuple[_Body, tuple[Prompt, ...]]:
        engine = self._engine
        try:
            body = _decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            text = f"1 validation error:\n  {error}"
            raise ApiError(400, text, kind="Bad Request", param="body") from error
        if body.model is not None and body.model not in engine.models:
            raise UnknownModelError(body.model, ", ".join(engine.models))
        config = engine.config
        prompts = prompts_of(body.input, config.bytes_per_token, (body.model, "embedding"))
        if not prompts:
            raise ApiError(400, "input must be a text, token ids, or a list.", param="input")
        longest = max(prompt.tokens for prompt in prompts)
        if longest > config.context_tokens:
            problem = f"This model's maximum context length is {config.context_tokens} tokens."
            raise InvalidValueError("input_tokens", problem, longest)
        if not 1 <= (body.dimensions or 1) <= _MAX_DIMENSIONS:
            raise InvalidValueError("dimensions", "dimensions is out of range", body.dimensions)
        if engine.batch.is_full:
            engine.figures.refused += 1
            raise ApiError(503, BUSY, kind="Service Unavailable")
        return body, prompts

    def _on_read(
        self, body: _Body, prompts: tuple[Prompt, ...], _produced: int, _is_last: bool
    ) -> None:
        self._left -= 1
        if self._left:
            return
        engine = self._engine
        engine.figures.finished["stop"] += len(prompts)
        dimensions = body.dimensions or engine.config.embedding_dimensions
        data = []
        for place, prompt in enumerate(prompts):
            vector: list[float] | str = _vector(prompt, place, dimensions)
            if body.encoding_format == "base64":
                vector = base64.b64encode(struct.pack(f"<{dimensions}f", *vector)).decode()
            data.append({"index": place, "object": "embedding", "embedding": vector})
        tokens = sum(prompt.tokens for prompt in prompts)
        usage = {
            "prompt_tokens": tokens,
            "total_tokens": tokens,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
        }
        reply = {
            "id": "embd-simulated",
            "object": "list",
            "created": 0,
            "model": body.model or engine.models[0],
            "data": data,
            "usage": usage,
        }
        self._client.respond(200, _encode(reply))
