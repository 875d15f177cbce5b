"""The model and its LoRA adapters, as ``/v1/models`` shows them; adapters come and go at run time."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import msgspec

from backends.local.errors import ApiError
from backends.simulated.answer import Answer
from backends.simulated.batch import Batch
from backends.simulated.config import SimulatedEngineConfig
from backends.simulated.metrics import MetricsPage, escape


class _Adapter(msgspec.Struct):
    lora_name: str
    lora_path: str | None = None


class ModelList:
    """The names that an engine answers to."""

    def __init__(self, config: SimulatedEngineConfig) -> None:
        self._config = config
        self._adapters = dict.fromkeys(config.lora_adapters, "simulated")  # name: path
        self._created = int(time.time())  # seconds since the epoch
        self._has_adapters = bool(self._adapters)  # or had
        self._noted: dict[tuple[str, str], float] = {}  # running, waiting: when last

    @property
    def names(self) -> tuple[str, ...]:
        """The model's name, then the adapters'."""
        return (self._config.model_name, *self._adapters)

    def describe(self) -> dict[str, Any]:
        """Return the body of ``/v1/models``."""
        name, context = self._config.model_name, self._config.context_tokens
        models = [self._describe(name, name, None, context)]
        models += [self._describe(one, path, name, None) for one, path in self._adapters.items()]
        return {"object": "list", "data": models}

    def _describe(
        self, name: str, root: str, parent: str | None, context: int | None
    ) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "forebay-simulated",
            "root": root,
            "parent": parent,
            "max_model_len": context,
        }

    def load(self, body: bytes) -> str:
        """Load an adapter; returns what to answer. Raises :class:`ApiError` 400."""
        adapter = _read(body)
        name = adapter.lora_name
        if name in self.names:
            problem = f"The lora adapter '{name}' has already been loaded."
            raise ApiError(400, problem, kind="InvalidUserInput")
        self._adapters[name] = adapter.lora_path or "simulated"
        self._has_adapters = True
        return f"Success: LoRA adapter '{name}' added successfully."

    def unload(self, body: bytes) -> str:
        """Unload an adapter; returns what to answer. Raises :class:`ApiError` 400, 404."""
        name = _read(body).lora_name
        if self._adapters.pop(name, None) is None:
            problem = f"The lora adapter '{name}' cannot be found."
            raise ApiError(404, problem, kind="NotFoundError")
        return f"Success: LoRA adapter '{name}' removed successfully."

    def note_adapters(self, answers: Iterable[Answer], batch: Batch) -> None:
        """Note which adapters run and which wait now."""
        if not self._has_adapters:
            return
        running: set[str] = set()
        waiting: set[str] = set()
        for answer in answers:
            if answer.model in self._adapters:
                is_running = any(batch.is_running(one) for one in answer.sequences)
                (running if is_running else waiting).add(answer.model)
        self._noted[",".join(sorted(running)), ",".join(sorted(waiting))] = time.time()

    def add_metrics(self, page: MetricsPage) -> None:
        """Add what was noted: as in vLLM a sample for each set of adapters, its value the last time."""
        samples = {
            f'max_lora="{self._config.max_loras}",running_lora_adapters="{escape(running)}",'
            f'waiting_lora_adapters="{escape(waiting)}"': at
            for (running, waiting), at in self._noted.items()
        }
        if samples:
            page.add_own("lora_requests_info", "Running stats on lora requests.", samples)


def _read(body: bytes) -> _Adapter:
    try:
        return msgspec.json.decode(body, type=_Adapter)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, str(error), kind="Bad Request", param="body") from error
