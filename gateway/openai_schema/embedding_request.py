"""What we read of a request for embeddings. Token ids are counted where they lie, not made numbers of."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gateway.openai_schema.requests import GenerationRequest

_DIGITS = b"-0123456789"
_IDS = _DIGITS + b", \t\r\n"


class EmbeddingRequest(GenerationRequest, kw_only=True):
    """Body of ``POST /v1/embeddings``: text, token ids, a list of either, or vLLM's ``messages``.

    A reply in another form than these two would not tell its tokens, so no other is taken.
    """

    input: str | Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1)] | None = None
    messages: list[msgspec.Raw] | None = None
    encoding_format: Literal["float", "base64"] | None = None

    def __post_init__(self) -> None:
        """Ask for something to embed, and pass over what only generation has, as vLLM does.

        Raises ValueError, in the words of a member that is missing or of the wrong type.
        """
        if self.input is None and self.messages is None:
            raise ValueError("Object missing required field `input`")
        self.read_lengths()
        self.stream = self.stream_options = self.max_tokens = self.max_completion_tokens = None
        self.n = 0  # choices

    @property
    def are_ids(self) -> bool:
        """Whether the input is token ids, of one prompt or of several."""
        return isinstance(self.input, list) and not bytes(self.input[0]).startswith(b'"')

    def read_lengths(self) -> list[int]:
        """Return how long each prompt of a list is: tokens where they are ids, else bytes of JSON.

        Empty where the input is no list. Raises ValueError for a member of the wrong type.
        """
        given = self.input
        if not isinstance(given, list):
            return []
        if not bytes(given[0]).translate(None, _DIGITS):
            ids = b"".join(map(bytes, given))
            if ids.translate(None, _DIGITS):
                raise ValueError("Expected a list of `int` - at `$.input`")
            return [len(given)]
        return [_length_of(bytes(one), place) for place, one in enumerate(given)]


def _length_of(prompt: bytes, place: int) -> int:
    if prompt.startswith(b'"'):
        return len(prompt) - 2
    ids = prompt[1:-1]
    if prompt.startswith(b"[") and ids.strip() and not ids.translate(None, _IDS):
        return ids.count(b",") + 1
    raise ValueError(f"Expected `str` or a list of `int` - at `$.input[{place}]`")
