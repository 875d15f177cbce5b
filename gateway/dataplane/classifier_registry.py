"""The prompt classifiers that a worker has, by name; swapped with the Snapshot that names them.

Weights are fetched, checked and made ready before the Snapshot that names them takes effect, off the
request path. A Snapshot waits for that only a moment, for it may carry a revoked key. What could not
be had by then is tried again and again, and meanwhile the last good weights of that name serve, or without
any (after a start) those that are shipped under it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from gateway.snapshot.model import ClassifierWeights, Snapshot
from gateway.snapshot.weights import WeightsReader
from routing.complexity.predictor import (
    SHIPPED,
    Predictor,
    WeightsError,
    decode_weights,
    list_shipped,
    read_weights,
)

PREPARE_SECONDS = 0.5
RETRY_SECONDS = 1.0

_LOG = logging.getLogger(__name__)


class _Named(msgspec.Struct):
    """The part of a Snapshot that is looked at before it is taken."""

    classifiers: dict[str, ClassifierWeights] = {}


_DECODER = msgspec.json.Decoder(_Named)


class ClassifierRegistry:
    """Finds the Predictor of a name.

    ``on_change`` is called when weights came after the Snapshot that names them.
    """

    def __init__(self, readers: Sequence[WeightsReader], on_change: Callable[[], None]) -> None:
        self._readers = readers
        self._on_change = on_change
        self._shipped = _read_shipped()
        self._loaded: dict[str, Predictor] = {}  # by SHA-256
        self._wanted: Mapping[str, ClassifierWeights] = {}
        self._serving: dict[str, Predictor] = {}  # by name
        self._told: set[str] = set()  # SHA-256 whose absence was logged
        self._turn = asyncio.Lock()
        self._late: set[asyncio.Task[None]] = set()

    def find(self, name: str | None) -> Predictor | None:
        """Return what scores for a classifier's name: uploaded weights, else those shipped under it.

        None as a name is the shipped default; None as the answer means that nothing can score.
        """
        if name is None:
            return self._shipped.get(SHIPPED.stem)
        return self._serving.get(name) or self._shipped.get(name)

    async def prepare(self, data: bytes) -> None:
        """Load what the Snapshot in ``data`` names, for half a second at most. Never raises."""
        try:
            named = _DECODER.decode(data).classifiers.values()
        except msgspec.DecodeError:
            return  # whoever takes the Snapshot says so
        if all(one.sha256 in self._loaded for one in named):
            return
        loading = asyncio.create_task(self._load(named))
        self._late.add(loading)
        loading.add_done_callback(self._late.discard)
        await asyncio.wait({loading}, timeout=PREPARE_SECONDS)

    def load_now(self, snapshot: Snapshot, read: Callable[[str], bytes | None]) -> None:
        """Load what ``snapshot`` names, blocking: before the first request."""
        for one in snapshot.classifiers.values():
            if one.sha256 not in self._loaded and (data := read(one.sha256)) is not None:
                self._keep(one, _decode(one, data))

    def use(self, snapshot: Snapshot) -> None:
        """Serve what ``snapshot`` names, as far as it is loaded; of the rest the last good weights."""
        self._wanted = snapshot.classifiers
        self._choose()

    async def follow(self) -> None:
        """Try again, for ever, what could not be had."""
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            missing = self._find_missing()
            if missing:
                await self._load(missing)
                if any(one.sha256 in self._loaded for one in missing):
                    self._choose()
                    self._on_change()

    def _find_missing(self) -> list[ClassifierWeights]:
        return [
            one
            for name, one in self._wanted.items()
            if name not in self._serving or self._serving[name].digest != one.sha256
        ]

    def _choose(self) -> None:
        before, self._serving = self._serving, {}
        for name, one in self._wanted.items():
            found = self._loaded.get(one.sha256) or before.get(name)
            if found is not None:
                self._serving[name] = found
            if found is None or found.digest != one.sha256:
                self._tell(one, found)
            elif before.get(name) is not found:
                self._told.discard(one.sha256)
                _LOG.info("classifier %s: version %d serves", name, one.version)
        serving = {one.digest for one in self._serving.values()}
        self._loaded = {sha256: one for sha256, one in self._loaded.items() if sha256 in serving}

    def _tell(self, one: ClassifierWeights, instead: Predictor | None) -> None:
        if one.sha256 in self._told:
            return
        self._told.add(one.sha256)
        _LOG.warning(
            "classifier %s: version %d cannot be had; %s",
            one.name,
            one.version,
            self._say_instead(one.name, instead),
        )

    def _say_instead(self, name: str, instead: Predictor | None) -> str:
        if instead is not None:
            return f"weights {instead.digest[:12]} go on serving"
        if name in self._shipped:
            return "the weights that are shipped under this name serve"
        return "nothing scores"

    async def _load(self, named: Iterable[ClassifierWeights]) -> None:
        async with self._turn:
            for one in named:
                for reader in self._readers:
                    if one.sha256 in self._loaded:
                        break
                    data = await reader.read(one.sha256)
                    if data is not None:
                        self._keep(one, await asyncio.to_thread(_decode, one, data))

    def _keep(self, one: ClassifierWeights, found: Predictor | None) -> None:
        if found is not None:
            self._loaded[one.sha256] = found


def _decode(one: ClassifierWeights, data: bytes) -> Predictor | None:
    """Return the weights if they are those that were named; say so if not."""
    try:
        found = decode_weights(data)
    except WeightsError as error:
        _LOG.warning("classifier %s, version %d: %s", one.name, one.version, error)
        return None
    if found.digest != one.sha256:
        _LOG.warning("classifier %s, version %d: other weights were read", one.name, one.version)
        return None
    return found


def _read_shipped() -> dict[str, Predictor]:
    found: dict[str, Predictor] = {}
    for name, path in list_shipped().items():
        try:
            found[name] = read_weights(path)
        except (OSError, WeightsError) as error:
            _LOG.warning("the weights %s cannot be read: %s", name, error)
    return found
