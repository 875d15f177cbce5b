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

MAGIC = b"FBROUTE1"
SHIPPED = Path(__file__).with_name("weights") / "exam-questions.bin"
CLIP = 4.0  # figures, in standard deviations
_MAX_HEADER_BYTES = 1 << 20
_MAX_BITS = 22


class WeightsError(ValueError):
    """The file is not weights of this version of the classifier."""


class Group(msgspec.Struct, frozen=True):
    """Where one source of training prompts lies; ``centre`` and ``spread`` as standardised figures.

    A prompt whose mean squared distance is above ``limit`` does not belong to it.
    """

    name: str
    centre: tuple[float, ...]
    spread: tuple[float, ...]
    limit: float


class Header(msgspec.Struct, frozen=True):
    """All of the weights but the table of hashed words. Head 0 is the small model's, head 1 the large's."""

    name: str
    bits: int
    scales: tuple[float, float]
    biases: tuple[float, float]
    figures: tuple[str, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    figure_weights: tuple[tuple[float, ...], tuple[float, ...]]
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

    def __init__(self, header: Header, small: array[int], large: array[int], digest: str) -> None:
        self.header = header
        self.digest = digest
        self._small = small
        self._large = large
        self._mask = (1 << header.bits) - 1

    def predict(self, prompt: str) -> Prediction:
        """Return the prediction for a prompt; never raises, whatever the text."""
        features = extract(prompt)
        header = self.header
        figures = self.standardise(features)
        distance = min(
            (measure_distance(figures, group) / group.limit for group in header.groups), default=inf
        )
        if distance > 1.0:
            score = header.length_offset + header.length_slope * features.figures[0]
            return Prediction(*header.base_rates, max(-1.0, min(1.0, score)), False, distance)
        mask = self._mask
        buckets = [hashed & mask for hashed in features.words | features.pairs]
        share = 1.0 / sqrt(len(buckets) or 1)
        sums = (
            sum(map(self._small.__getitem__, buckets)),
            sum(map(self._large.__getitem__, buckets)),
        )
        small, large = (
            _logistic(
                header.biases[head]
                + sums[head] * header.scales[head] * share
                + sum(map(float.__mul__, header.figure_weights[head], figures))
            )
            for head in (0, 1)
        )
        return Prediction(small, large, large - small, True, distance)

    def standardise(self, features: Features) -> list[float]:
        """Return the figures in standard deviations from the training data's mean, clipped."""
        header = self.header
        return [
            max(-CLIP, min(CLIP, (figure - mean) / deviation))
            for figure, mean, deviation in zip(
                features.figures, header.means, header.deviations, strict=True
            )
        ]

    def weigh(self, hashed: int) -> float:
        """Return what a word speaks for the large model with, before it is shared among a prompt's words."""
        bucket, (small, large) = hashed & self._mask, self.header.scales
        return self._large[bucket] * large - self._small[bucket] * small


def measure_distance(figures: list[float], group: Group) -> float:
    """Return the mean squared distance of standardised figures from a group's centre."""
    total = 0.0
    for figure, centre, spread in zip(figures, group.centre, group.spread, strict=True):
        off = (figure - centre) / spread
        total += off * off
    return total / len(figures)


def _logistic(value: float) -> float:
    value = max(-30.0, min(30.0, value))
    return 1.0 / (1.0 + exp(-value))


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
    widths = {len(header.means), len(header.deviations), *map(len, header.figure_weights)}
    widths |= {len(part) for group in header.groups for part in (group.centre, group.spread)}
    table = body[start + size :]
    if widths != {len(FIGURES)} or not 1 <= header.bits <= _MAX_BITS:
        raise WeightsError("the weights contradict themselves")
    if len(table) != 4 << header.bits:
        raise WeightsError("the table of the weights is cut short")
    numbers = array("h")
    numbers.frombytes(table)
    if byteorder == "big":
        numbers.byteswap()
    half = 1 << header.bits
    return Predictor(header, numbers[:half], numbers[half:], digest.hex())


def encode_weights(header: Header, table: bytes) -> bytes:
    """Return the file: ``table`` is two little-endian 16-bit integers' tables, small then large."""
    text = msgspec.json.encode(header)
    body = MAGIC + len(text).to_bytes(4, "little") + text + table
    return body + sha256(body).digest()
