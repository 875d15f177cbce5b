"""Which matrices a quantized model keeps at 16 bits: the names that its ``config.json`` leaves out.

vLLM matches such names against those of the modules, whole, in part, or as a pattern (``re:``). Here
they are read as parts of layers. What is at 16 bits in any case (embeddings, output matrix, routers,
norms) or is no part of the language model says nothing more; any other name is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from billing.costing.errors import ModelConfigError
from billing.costing.model_shape import ModelShape

Part = Literal["attention", "feed_forward", "experts", "shared"]

_FIELDS = ("modules_to_not_convert", "ignore", "ignored_layers")
_LAYER = re.compile(r"\b(?:layers|h|blocks)\.(\d+)(?:\.|$)")
_AT_16_BITS = re.compile(
    r"lm_head|embed|\bwte\b|\bwpe\b|router|norm|(?:^|[.*])(?:shared_expert_)?gate$"
    r"|vision|visual|image|audio|projector|merger|\bmtp\b|rotary|sinks|bias"
)
_PARTS: Sequence[tuple[Part, re.Pattern[str]]] = (
    ("shared", re.compile(r"shared_expert")),
    ("experts", re.compile(r"experts")),
    ("attention", re.compile(r"attn|attention")),
    ("feed_forward", re.compile(r"mlp|feed_forward|ffn|moe")),
)
# The matrices of a part, and those that engines read as one.
_MATRICES = re.compile(r"\b(q|k|v|o|out|gate|up|down|qkv|gate_up)_proj\b|\.(w[123])\b")
_MERGED = {"qkv": "qkv", "gate_up": ("gate", "up"), "out": "o"}
_ALL_MATRICES = frozenset(("q", "k", "v", "o", "gate", "up", "down"))
_FEED_FORWARD = {"w1": "gate", "w2": "down", "w3": "up"}


@dataclass(frozen=True, slots=True)
class KeptModule:
    """Matrices that stay at 16 bits: of one layer or all, the whole of a part or some of it."""

    part: Part
    layer: int | None  # None: all of them
    matrices: frozenset[str]  # of q, k, v, o, or gate, up, down; empty: all of the part


def read_kept_modules(quantization: Mapping[str, Any]) -> tuple[KeptModule, ...]:
    """Return what a ``quantization_config`` leaves at 16 bits.

    Raises :class:`ModelConfigError` for a name that cannot be told to be a part of the layers.
    """
    names: list[str] = []
    for field in _FIELDS:
        told = quantization.get(field)
        names += [str(name) for name in told] if isinstance(told, list) else []
    found = [kept for name in names for plain in _spell_out(name) for kept in _read_name(plain)]
    return tuple(dict.fromkeys(found))


def _spell_out(name: str) -> list[str]:
    """Return a pattern's alternatives, and its "any" as an asterisk; a plain name as it is."""
    if not name.startswith("re:"):
        return [name]
    plain = re.sub(r"\.\*|\\d\+|\[0-9\]\+", "*", name.removeprefix("re:"))
    plain = plain.replace("\\", "").strip("^$")
    group = re.search(r"\(([\w|.]+)\)", plain)
    names = (
        [plain.replace(group.group(), one, 1) for one in group.group(1).split("|")]
        if group
        else [plain]
    )
    if any(re.search(r"[()|\[\]{}?+^$]", one) for one in names):
        _refuse(name)
    return names


def _read_name(name: str) -> list[KeptModule]:
    plain = name.lower().rstrip("*.")
    told = _MATRICES.findall(plain)
    letters = [_split(matrix or _FEED_FORWARD[short]) for matrix, short in told]
    matrices = frozenset(letter for some in letters for letter in some)
    if not matrices and _AT_16_BITS.search(plain):
        return []
    if not matrices and "_proj" in plain:
        _refuse(name)
    found = _LAYER.search(plain)
    layer = int(found.group(1)) if found else None
    if found and found.end() == len(plain):
        return [KeptModule(part, layer, matrices) for part, _ in _PARTS]
    part = next((part for part, pattern in _PARTS if pattern.search(plain)), None)
    if part is None:
        _refuse(name)
    if part == "feed_forward" and not matrices:  # whatever it is made of
        return [KeptModule(one, layer, matrices) for one, _ in _PARTS if one != "attention"]
    return [KeptModule(part, layer, matrices)]


def _refuse(name: str) -> NoReturn:
    raise ModelConfigError(
        f"the quantization leaves out {name!r:.80}, which cannot be told to be a part of the layers"
    )


def _split(matrix: str) -> Sequence[str]:
    return _MERGED.get(matrix, (matrix,))


def count_kept(shape: ModelShape, kept: Sequence[KeptModule], sizes: Mapping[Part, int]) -> int:
    """Return how many parameters stay at 16 bits.

    ``sizes``: of each part in one layer that has it. Raises :class:`ModelConfigError` for single
    layers of a model of which only some have experts: which ones is not kept in the shape.
    """
    layers = _count_layers(shape)
    total = 0.0
    for part, size in sizes.items():
        own: dict[int | None, frozenset[str]] = {None: frozenset()}
        for module in kept:
            if module.part == part and (module.layer is None or module.layer < shape.layers):
                told = module.matrices or _ALL_MATRICES
                own[module.layer] = own.get(module.layer, frozenset()) | told
        everywhere = own.pop(None)
        common = _share(shape, part, everywhere)
        single = sum(_share(shape, part, told | everywhere) - common for told in own.values())
        if single and part != "attention" and 0 < layers["experts"] < shape.layers:
            raise ModelConfigError(
                "the quantization leaves out single layers of a model of which some have experts: "
                "that is not counted"
            )
        total += size * min(layers[part], layers[part] * common + single)
    return round(total)


def _count_layers(shape: ModelShape) -> Mapping[Part, int]:
    sparse = shape.experts.layers if shape.experts else 0
    return {
        "attention": shape.layers,
        "feed_forward": shape.layers - sparse,
        "experts": sparse,
        "shared": sparse,
    }


def _share(shape: ModelShape, part: Part, matrices: frozenset[str]) -> float:
    """Return which share of the part these of its matrices are: 0 to 1."""
    if not matrices or matrices >= _ALL_MATRICES:
        return 1.0 if matrices else 0.0
    if part != "attention":
        names = {"gate", "up", "down"} if shape.has_gated_feed_forward else {"up", "down"}
        return len(matrices & names) / len(names)
    if shape.latent is not None:
        raise ModelConfigError("single matrices of latent attention at 16 bits are not counted")
    heads = {"q": shape.heads, "o": shape.heads, "k": shape.kv_heads, "v": shape.kv_heads}
    return sum(heads.get(name, 0) for name in matrices) / sum(heads.values())
