"""What a choice among replicas is made of. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReplicaState(StrEnum):
    """How a replica stands, as far as we know."""

    STARTING = "starting"  # never yet ready, or back and loading its model
    READY = "ready"
    SATURATED = "saturated"  # serves, and more would wait inside it
    LACKS_MODEL = "lacks_model"  # runs, and lists other models than its deployment's
    DRAINING = "draining"  # gets nothing new, by an admin's word or its own
    SLEEPING = "sleeping"  # has given its GPU back; a request wakes it
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RequestShape:
    """What a request asks of a replica; tokens are guesses."""

    input_tokens: int
    output_tokens: int
    needs: frozenset[str] = frozenset()  # features, as Capabilities names them
    adapter: str | None = None  # LoRA adapter, by the name that engines know
    session: int | None = None  # hash of what names the conversation, within this process
    session_key: int | None = None  # the same in every worker; 32 bits
    blocks: tuple[int, ...] = ()  # chained hashes of the prompt's blocks, the first block first
    prompt_bytes: int = 0  # of which the blocks are the beginning; 0: they are all of it
    home_key: int | None = None  # hash of the first block, the same in every worker; 32 bits
    # Of output in a choice, by the client's own bound; 0: it gave none. Below 0: the input is many
    # prompts with a context each, and the longest of them has so much less than all.
    asked_tokens: int = 0
