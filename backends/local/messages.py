"""What the HTTP process and the engine process say to each other, and how it is framed.

A frame is a length (4 bytes, big-endian) and a msgpack body. Commands go to the engine process,
reports come back. One sequence is one prompt continued once: a request for several choices or
prompts is several sequences.
"""

from __future__ import annotations

import struct

import msgspec

LENGTH = struct.Struct(">I")


class ChatMessage(msgspec.Struct, frozen=True):
    """One turn, its content already flattened to text."""

    role: str
    content: str


class ChatPrompt(msgspec.Struct, frozen=True, tag="chat"):
    """Turns that the model's chat template makes into one text."""

    messages: tuple[ChatMessage, ...]


class TextPrompt(msgspec.Struct, frozen=True, tag="text"):
    """Text that is continued as it is."""

    text: str


class TokenPrompt(msgspec.Struct, frozen=True, tag="tokens"):
    """Token ids that are continued as they are."""

    token_ids: tuple[int, ...]


Prompt = ChatPrompt | TextPrompt | TokenPrompt


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How a sequence is continued; all values already checked."""

    max_tokens: int | None  # None: what the context leaves
    min_tokens: int = 0
    temperature: float = 1.0  # below 1e-5: greedy
    top_p: float = 1.0
    top_k: int = 0  # 0: all tokens
    min_p: float = 0.0
    seed: int = 0  # 64 bits, unsigned
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    is_eos_ignored: bool = False
    stop_strings: tuple[str, ...] = ()
    is_stop_string_kept: bool = False
    stop_token_ids: tuple[int, ...] = ()
    json_schema: str | None = None  # the text must satisfy it
    grammar_cost_ms: int = 0  # processor time that compiling the schema probably takes
    grammar_member: str = "response_format"  # of the body, which has the schema


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """Continue a prompt."""

    sequence_id: int
    request_id: int  # of whom it is: the sequences of one request share its part of the engine
    prompt: Prompt
    sampling: Sampling


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Stop a sequence, whatever its state; an unknown or finished one is ignored."""

    sequence_id: int


Command = Submit | Cancel


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """The prompt fits and waits for its turn."""

    sequence_id: int
    prompt_tokens: int


class Rejected(msgspec.Struct, frozen=True, tag="rejected"):
    """The prompt cannot be continued: the client's mistake."""

    sequence_id: int
    message: str
    param: str | None = None


class Produced(msgspec.Struct, frozen=True, tag="produced"):
    """What one engine step added to a sequence."""

    sequence_id: int
    text: str  # may be empty: a special token, part of a character, part of a stop string
    output_tokens: int  # cumulative, the end-of-sequence token included
    finish_reason: str | None = None  # "stop" or "length"
    stop_reason: str | int | None = None  # the stop string or stop token that ended it


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The engine cannot go on with a sequence: not the client's mistake."""

    sequence_id: int
    message: str


SequenceEvent = Accepted | Rejected | Produced | Failed


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """Gauges, and counters since the engine process started."""

    running: int = 0
    waiting: int = 0
    kv_cache_usage: float = 0.0  # 0..1, blocks in use by running sequences
    prompt_tokens: int = 0  # of sequences whose prompt has been processed
    generation_tokens: int = 0
    finished_stop: int = 0
    finished_length: int = 0
    failed: int = 0


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """The model is in memory and answers."""


class LoadFailed(msgspec.Struct, frozen=True, tag="load_failed"):
    """The model cannot be loaded; the engine process ends."""

    message: str


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """What commands and one step brought, in order."""

    events: tuple[SequenceEvent, ...]
    stats: EngineStats


Report = Loaded | LoadFailed | Progress

_encoder = msgspec.msgpack.Encoder()
_command_decoder = msgspec.msgpack.Decoder(Command)
_report_decoder = msgspec.msgpack.Decoder(Report)


def encode_frame(message: Command | Report) -> bytes:
    """Return the frame of a message."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


def decode_command(body: bytes) -> Command:
    """Return the command in a frame's body. Raises ``msgspec.DecodeError``."""
    return _command_decoder.decode(body)


def decode_report(body: bytes) -> Report:
    """Return the report in a frame's body. Raises ``msgspec.DecodeError``."""
    return _report_decoder.decode(body)
