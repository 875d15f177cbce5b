"""The bodies of a sweep's requests. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from backends.sweep.lengths import Lengths
from backends.sweep.outcome import Ask
from backends.sweep.prompts import PromptWriter

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class AskedModel:
    """What of an OpenAI-compatible server is asked."""

    model: str
    is_chat: bool

    def write_body(self, prompt: str, output_tokens: int, *, ignores_eos: bool) -> bytes:
        """Return a streamed request that tells its usage; ``ignores_eos``: of the whole length."""
        body: dict[str, Any] = {"model": self.model}
        if self.is_chat:
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        body |= {
            "max_tokens": output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if ignores_eos:
            body["ignore_eos"] = True
        return _encode(body)


def deal_asks(
    endpoint: AskedModel,
    lengths: Lengths,
    writer: PromptWriter,
    rng: random.Random,
    *,
    ignores_eos: bool,
) -> Iterator[Ask]:
    """Yield requests for ever."""
    for number, pair in enumerate(lengths.deal(rng)):
        prompt = writer.write(number, pair.input_tokens)
        body = endpoint.write_body(prompt, pair.output_tokens, ignores_eos=ignores_eos)
        yield Ask(pair.input_tokens, pair.output_tokens, body)
