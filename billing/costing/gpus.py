"""GPUs as their makers' data sheets state them; ``docs/costing.md`` names each sheet.

Arithmetic is dense: NVIDIA's sheets mostly print twice as much, "with sparsity". GB are 10^9 bytes,
which is a little less than such a card has.
"""

from __future__ import annotations

from dataclasses import dataclass

from billing.costing.errors import CostingError

_GIGA = 10**9
_TERA = 10**12


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. ``fp8_tflops`` and ``int8_tops`` None: its tensor cores do not multiply in it."""

    name: str
    memory_gb: int
    bandwidth_gb_per_second: int
    bf16_tflops: float  # fp16 where the card has no bf16
    fp8_tflops: float | None
    int8_tops: float | None

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory."""
        return self.memory_gb * _GIGA

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return float(self.bandwidth_gb_per_second * _GIGA)

    def operations(self, arithmetic: str) -> float:
        """Return operations a second; what the card cannot do natively it does in 16 bits."""
        native = {"fp8": self.fp8_tflops, "int8": self.int8_tops}.get(arithmetic)
        return (native or self.bf16_tflops) * _TERA


GPUS = (
    Gpu("t4", 16, 320, 65, None, 130),
    Gpu("a10", 24, 600, 125, None, 250),
    Gpu("l4", 24, 300, 121, 242, 242),
    Gpu("rtx4090", 24, 1008, 165.2, 330.3, 660.6),
    Gpu("a6000", 48, 768, 154.8, None, 309.7),
    Gpu("l40s", 48, 864, 362, 733, 733),
    Gpu("a100-40", 40, 1555, 312, None, 624),
    Gpu("a100-80", 80, 2039, 312, None, 624),
    Gpu("h100-pcie", 80, 2000, 756, 1513, 1513),
    Gpu("h100", 80, 3350, 989, 1979, 1979),
    Gpu("h100-nvl", 94, 3900, 835, 1671, 1671),
    Gpu("h200", 141, 4800, 989, 1979, 1979),
    Gpu("b200", 180, 8000, 2250, 4500, 4500),
    Gpu("mi300x", 192, 5300, 1307.4, 2614.9, 2614.9),
    Gpu("mi325x", 256, 6000, 1307.4, 2614.9, 2614.9),
    Gpu("mi355x", 288, 8000, 2516.6, 5033.2, 5033.2),
)
_BY_NAME = {gpu.name: gpu for gpu in GPUS}


def get_gpu(name: str) -> Gpu:
    """Return the GPU of this name. Raises :class:`CostingError` with the names there are."""
    gpu = _BY_NAME.get(name.lower())
    if gpu is None:
        raise CostingError(f"no GPU {name!r}; there are {', '.join(_BY_NAME)}")
    return gpu
