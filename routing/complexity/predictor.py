"""Scores a prompt: is the small model enough, is the large one, and does the classifier know at all."""

from __future__ import annotations

from array import array
from hashlib import sha256
from math import exp, inf, sqrt
from pathlib import Path
from sys import byteorder
from typing import NamedTuple

import msgspec

from routing.complexity.features import FIGURES, Features, extract

MAGIC = b"FBROUTE2"
SHIPPED = Path(__file__).with_name("weights") / "exam-questions.bin"
# Figures, in standard deviations: as they weigh, and as they tell how far off a prompt is. The second has
# to be the wider: at 4 a prompt without answer options passed for one of ten.
CLIP = 4.0
FAR = 8.0
_MAX_HEADER_BYTES = 1 << 20
_MAX_BITS = 22
_MOST_PARTS = 16
MOST_GROUPS = 64  # each is measured for each prompt, some 3 µs of CPU
_HALF = 1 << 15
# The high byte of a 16-bit integer: with 2^15 added to the whole, and its sign for the bytes above.
_PLUS_HALF = bytes(byte ^ 0x80 for byte in range(256))
_SIGN = bytes(255 if byte & 0x80 else 0 for byte in range(256))


class WeightsError(ValueError):
    """The file is not weights of this version of the classifier."""


class Group(msgspec.Struct, frozen=True):
    """Where one source of training prompts lies; ``centre`` and ``spread`` as standardised figures.

    A prompt whose mean squared distance is above ``limit`` does not belong to it. ``part`` is the index of
    the part that was trained on it.
    """

    name: str
    part: int
    centre: tuple[float, ...]
    spread: tuple[float, ...]
    limit: float


class Part(msgspec.Struct, frozen=True):
    """What was learned of one pair of models, but for its table of hashed words.

    Head 0 is the small model's, head 1 the large one's.
    """

    pair: str
    scales: tuple[float, float]
    biases: tuple[float, float]
    figure_weights: tuple[tuple[float, ...], tuple[float, ...]]


class Header(msgspec.Struct, frozen=True):
    """All of the weights but the tables of hashed words."""

    name: str
    bits: int
    figures: tuple[str, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    parts: tuple[Part, ...]
    groups: tuple[Group, ...]
    base_rates: tuple[float, float]
    length_offset: float
    length_slope: float
    made_from: dict[str, str | int | float]


class Prediction(NamedTuple):
    """``score`` is what the large model is expected to add, about -1..1; send to it from a threshold on.

    Out of domain it comes from the prompt's length alone, and the two shares are those of the training data.
    ``distance`` is to the nearest group, 1.0 being its limit.
    """

    small_suffices: float
    large_suffices: float
    score: float
    is_in_domain: bool
    distance: float


class Predictor:
    """One set of weights. Immutable: another set is another Predictor."""

    def __init__(self, header: Header, tables: tuple[array[int], ...], digest: str) -> None:
        """``tables``: what ``_join_heads`` makes, one a part."""
        self.header = header
        self.digest = digest
        self._tables = tables
        self._mask = (1 << header.bits) - 1

    def predict(self, prompt: str) -> Prediction:
        """Return the prediction for a prompt; never raises, whatever the text."""
        features = extract(prompt)
        header = self.header
        figures = self.standardise(features)
        distance, number = self.find_part(figures)
        if distance > 1.0:
            score = header.length_offset + header.length_slope * features.figures[0]
            return Prediction(*header.base_rates, max(-1.0, min(1.0, score)), False, distance)
        part, table = header.parts[number], self._tables[number]
        clipped = clip_figures(figures)
        mask, count = self._mask, len(features.terms)
        share = 1.0 / sqrt(count or 1)
        sums = _split(sum([table[hashed & mask] for hashed in features.terms]), count)
        small, large = (
            _logistic(
                part.biases[head]
                + sums[head] * part.scales[head] * share
                + sum(map(float.__mul__, part.figure_weights[head], clipped))
            )
            for head in (0, 1)
        )
        return Prediction(small, large, large - small, True, distance)

    def find_part(self, figures: list[float]) -> tuple[float, int]:
        """Return the distance to the nearest group, and the part that was trained on it."""
        return min(
            (
                (measure_distance(figures, group) / group.limit, group.part)
                for group in self.header.groups
            ),
            default=(inf, 0),
        )

    def standardise(self, features: Features) -> list[float]:
        """Return the figures in standard deviations from the training data's mean, FAR at most."""
        header = self.header
        return [
            max(-FAR, min(FAR, (figure - mean) / deviation))
            for figure, mean, deviation in zip(
                features.figures, header.means, header.deviations, strict=True
            )
        ]

    def weigh(self, hashed: int, part: int) -> float:
        """Return what a word speaks for the large model with, before it is shared among a prompt's words."""
        small, large = _split(self._tables[part][hashed & self._mask], 1)
        scales = self.header.parts[part].scales
        return large * scales[1] - small * scales[0]


def clip_figures(figures: list[float]) -> list[float]:
    """Return standardised figures as they weigh."""
    return [max(-CLIP, min(CLIP, figure)) for figure in figures]


def measure_distance(figures: list[float], group: Group) -> float:
    """Return the mean squared distance of standardised figures from a group's centre."""
    total = 0.0
    for figure, centre, spread in zip(figures, group.centre, group.spread, strict=True):
        off = (figure - centre) / spread
        total += off * off
    return total / len(figures)


def _join_heads(table: bytes) -> array[int]:
    """Return one 64-bit integer a bucket, so that one look-up and one sum serve both heads.

    The small model's weight stands in the upper 32 bits; the large one's, made positive, in the lower.
    ``table`` is as in the file. Done by slices of bytes: a loop would hold up the swap of weights.
    """
    half = len(table) // 2
    small, large = table[:half], table[half:]
    joined = bytearray(half // 2 * 8)
    joined[0::8] = large[0::2]
    joined[1::8] = large[1::2].translate(_PLUS_HALF)
    joined[4::8] = small[0::2]
    joined[5::8] = small[1::2]
    joined[6::8] = joined[7::8] = small[1::2].translate(_SIGN)
    numbers = array("q")
    numbers.frombytes(joined)
    if byteorder == "big":
        numbers.byteswap()
    return numbers


def _split(total: int, count: int) -> tuple[int, int]:
    """Return both heads' sums from that of ``count`` joined weights."""
    return total >> 32, (total & 0xFFFFFFFF) - _HALF * count


def _logistic(value: float) -> float:
    value = max(-30.0, min(30.0, value))
    return 1.0 / (1.0 + exp(-value))


def list_shipped() -> dict[str, Path]:
    """Return the files of the weights that come with the product, by name."""
    return {path.stem: path for path in sorted(SHIPPED.parent.glob("*.bin"))}


def read_weights(path: Path) -> Predictor:
    """Read weights.

    Raises:
        WeightsError: the file is damaged, or was made for other features.
        OSError: it cannot be read.
    """
    return decode_weights(path.read_bytes())


def decode_weights(data: bytes) -> Predictor:
    """Decode what ``encode_weights`` made; the last 32 bytes are the SHA-256 of all before them."""
    body, digest = data[:-32], data[-32:]
    if not body.startswith(MAGIC) or sha256(body).digest() != digest:
        raise WeightsError("not router weights, or damaged")
    start = len(MAGIC) + 4
    size = int.from_bytes(body[len(MAGIC) : start], "little")
    if size > _MAX_HEADER_BYTES:
        raise WeightsError("the header of the weights is too large")
    try:
        header = msgspec.json.decode(body[start : start + size], type=Header)
    except msgspec.MsgspecError as error:
        raise WeightsError(f"the header of the weights: {error}") from error
    if header.figures != FIGURES:
        raise WeightsError("these weights were made for other features")
    size_of_table = 4 << header.bits
    tables = body[start + size :]
    _check_header(header)
    if len(tables) != len(header.parts) * size_of_table:
        raise WeightsError("the table of the weights is cut short")
    joined = tuple(
        _join_heads(tables[begin : begin + size_of_table])
        for begin in range(0, len(tables), size_of_table)
    )
    return Predictor(header, joined, digest.hex())


def _check_header(header: Header) -> None:
    widths = {len(header.means), len(header.deviations)}
    widths |= {len(head) for part in header.parts for head in part.figure_weights}
    widths |= {len(side) for group in header.groups for side in (group.centre, group.spread)}
    is_known = all(0 <= group.part < len(header.parts) for group in header.groups)
    divisors = (*header.deviations, *(group.limit for group in header.groups))
    divisors += tuple(one for group in header.groups for one in group.spread)
    if (
        widths != {len(FIGURES)}
        or not 1 <= header.bits <= _MAX_BITS
        or not 1 <= len(header.parts) <= _MOST_PARTS
        or not is_known
        or len(header.groups) > MOST_GROUPS
        or min(divisors) <= 0
    ):
        raise WeightsError("the weights contradict themselves")


def encode_weights(header: Header, tables: bytes) -> bytes:
    """Return the file: a part's table is two of little-endian 16-bit integers, small then large."""
    text = msgspec.json.encode(header)
    body = MAGIC + len(text).to_bytes(4, "little") + text + tables
    return body + sha256(body).digest()
