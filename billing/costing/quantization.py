"""How many bits a weight takes, scales and zero points of its group included. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from billing.costing.errors import CostingError
from billing.costing.kept_modules import KeptModule, read_kept_modules

_SCALE_BITS = 16  # one 16-bit scale a group
DEFAULT_GROUP = 128


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the matrices of the layers are stored.

    Embeddings, the output matrix, routers and norms stay at 16 bits, as vLLM keeps them.
    """

    name: str
    bits: int
    group: int | None = None  # weights that share a scale; None: one a column, not worth counting
    group_bits: int = 0  # bits of scale and zero point a group
    arithmetic: str = "bf16"  # in which the tensor cores multiply: "bf16", "fp8" or "int8"
    is_of_experts_only: bool = False  # everything else of the layers stays at 16 bits
    kept: tuple[KeptModule, ...] = ()  # what else the model's file leaves at 16 bits

    @property
    def bits_per_weight(self) -> float:
        """Bits a weight, its part of the group's scale included."""
        return self.bits + (self.group_bits / self.group if self.group else 0.0)


# 4-bit kernels multiply in 16 bits: they save memory and its traffic, not arithmetic.
_KNOWN = {
    "bf16": Quantization("bf16", 16),
    "fp8": Quantization("fp8", 8, arithmetic="fp8"),
    "int8": Quantization("int8", 8, arithmetic="int8"),
    "int4": Quantization("int4", 4, DEFAULT_GROUP, _SCALE_BITS),
    "gptq": Quantization("gptq", 4, DEFAULT_GROUP, _SCALE_BITS + 4),
    "awq": Quantization("awq", 4, DEFAULT_GROUP, _SCALE_BITS + 4),
    # vLLM has it for experts alone, and fills up what is no multiple of its group.
    "mxfp4": Quantization("mxfp4", 4, 32, 8, is_of_experts_only=True),
}
NAMES = tuple(_KNOWN)


def get_quantization(name: str, *, group: int | None = None) -> Quantization:
    """Return the quantization of this name, with another group size if one is told.

    Raises :class:`CostingError` for a name that is not in :data:`NAMES`.
    """
    known = _KNOWN.get(name.lower())
    if known is None:
        raise CostingError(f"no quantization {name!r}; there are {', '.join(NAMES)}")
    if group is None or known.group is None:
        return known
    if group <= 0:
        raise CostingError("a group has at least one weight")
    return replace(known, group=group)


def read_quantization(content: Mapping[str, Any]) -> Quantization:
    """Return what a parsed ``config.json`` says the weights are stored as; 16 bits if nothing.

    Raises :class:`CostingError` for a method, or modules left out of it, that cannot be counted.
    """
    told = _find_told(content)
    if told is None:
        return _KNOWN["bf16"]
    return replace(_read_method(told), kept=read_kept_modules(told))


def _find_told(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what is told of the quantization, also where a nested part or an old file tells it."""
    names = ("quantization_config", "compression_config")
    parts = [content, *(content.get(part) for part in ("text_config", "llm_config"))]
    for part in parts:
        if not isinstance(part, Mapping):
            continue
        for name in names:
            if isinstance(told := part.get(name), Mapping):
                return told
    return None


def _read_method(told: Mapping[str, Any]) -> Quantization:
    method = str(told.get("quant_method", "")).lower()
    bits = told.get("bits", told.get("w_bit"))
    if told.get("dynamic"):
        raise CostingError(f"{method} with rules of its own for some modules cannot be counted")
    if method in {"awq", "gptq"} and bits in (4, None):
        group = told.get("group_size") or told.get("q_group_size")
        if group == -1:  # one scale a column
            return replace(_KNOWN[method], group=None)
        return get_quantization(
            method, group=group if isinstance(group, int) and group > 0 else None
        )
    if method == "gptq" and bits == 8:
        return _KNOWN["int8"]
    if method in {"fp8", "mxfp4"}:
        return _KNOWN[method]
    if method in {"fbgemm_fp8"}:
        return _KNOWN["fp8"]
    if method == "compressed-tensors":
        return _read_compressed(told)
    raise CostingError(
        f"the config's quantization {method or 'without a name'!r} cannot be counted"
    )


def _read_compressed(told: Mapping[str, Any]) -> Quantization:
    groups = told.get("config_groups")
    found = {
        _read_group(part)
        for part in (groups.values() if isinstance(groups, Mapping) else ())
        if isinstance(part, Mapping) and isinstance(part.get("weights"), Mapping)
    }
    if len(found) == 1 and (only := found.pop()) is not None:
        return only
    raise CostingError("the config's compressed-tensors format cannot be counted")


def _read_group(part: Mapping[str, Any]) -> Quantization | None:
    """Return how a group's weights are stored; None: not as can be counted, or not all of them."""
    weights = part["weights"]
    bits, kind = weights.get("num_bits"), weights.get("type")
    if part.get("targets") not in (None, ["Linear"]):
        return None
    if bits == 8:
        return _KNOWN["fp8" if kind == "float" else "int8"]
    if bits == 4 and kind == "int":
        group = weights.get("group_size")
        return get_quantization("int4", group=group if isinstance(group, int) else None)
    return None
