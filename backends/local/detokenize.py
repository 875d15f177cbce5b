"""Token ids to text, one token at a time, never cutting a character.

The vocabulary is bytes: a character outside ASCII may be spread over several tokens, and decoding
each token alone would yield U+FFFD. The tokens' bytes go through an incremental UTF-8 decoder, which
keeps an unfinished character back until its last byte has come.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet


class Vocabulary:
    """The bytes of each token id; special tokens have none, since they are not shown."""

    def __init__(self, ids: Mapping[bytes, int], special_ids: AbstractSet[int]) -> None:
        self._bytes = [b""] * (max(ids.values()) + 1)
        for token, token_id in ids.items():
            if token_id not in special_ids:
                self._bytes[token_id] = token
        self.max_token_bytes = max(len(token) for token in self._bytes)

    def __len__(self) -> int:
        return len(self._bytes)

    def bytes_of(self, token_ids: Sequence[int]) -> bytes:
        """Return the bytes of ``token_ids``. Raises ``IndexError`` for an unknown id."""
        return b"".join([self._bytes[token_id] for token_id in token_ids])


class TextDecoder:
    """Decodes the tokens of one sequence.

    Bytes that are no UTF-8 become U+FFFD. A character still unfinished at the end of the sequence is
    left out, as vLLM does.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_ids: Sequence[int]) -> str:
        """Return the text that became certain with ``token_ids``."""
        return self._decoder.decode(self._vocabulary.bytes_of(token_ids))
