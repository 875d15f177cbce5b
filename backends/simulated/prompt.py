"""How many tokens a prompt has, and the names of its cache blocks."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

from backends.simulated.kv_cache import BLOCK_TOKENS, chain_blocks


class Prompt(msgspec.Struct, frozen=True):
    """One prompt as the batch sees it."""

    tokens: int
    blocks: tuple[int, ...] = ()


def prompt_of_bytes(text: bytes, bytes_per_token: float, salt: Hashable) -> Prompt:
    """Return a prompt of so many bytes; equal beginnings have equal blocks."""
    tokens = max(1, round(len(text) / bytes_per_token))
    block = max(1, round(bytes_per_token * BLOCK_TOKENS))
    return Prompt(tokens, chain_blocks(text, block, salt)[: tokens // BLOCK_TOKENS])


def prompts_of(given: Any, bytes_per_token: float, salt: Hashable) -> tuple[Prompt, ...]:
    """Return the prompts of a text, of token ids, or of a list of either; none for anything else."""
    if not isinstance(given, list) or (given and type(given[0]) is int):
        given = [given]
    prompts: list[Prompt] = []
    for one in given:
        if isinstance(one, str):
            prompts.append(prompt_of_bytes(one.encode(), bytes_per_token, salt))
        elif isinstance(one, list) and one and all(type(token) is int for token in one):
            prompts.append(Prompt(len(one), chain_blocks(one, BLOCK_TOKENS, salt)))
        else:
            return ()
    return tuple(prompts)


def token_ids(text: bytes, tokens: int) -> list[int]:
    """Return made-up ids for the ``tokens`` of ``text``: equal pieces have equal ids."""
    size = max(1, -(-len(text) // tokens))
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    pieces += [b""] * (tokens - len(pieces))
    return [sum(piece) % 50_000 + len(piece) for piece in pieces]
