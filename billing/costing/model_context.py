"""How many tokens a sequence may have, as vLLM takes it from a model's ``config.json``. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from billing.costing.config_fields import find_figure
from billing.costing.errors import ModelConfigError

_NAMES = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
    *("max_sequence_length", "max_seq_length", "seq_len"),
)
# Of these max_position_embeddings is the scaled length already; of the others (linear, dynamic) the
# factor is still to be multiplied with.
_ALREADY_SCALED = frozenset(
    ("default", "mrope", "su", "longrope", "llama3", "yarn", "deepseek_yarn")
)


@dataclass(frozen=True, slots=True)
class ModelContext:
    """Tokens of a sequence, input and output together."""

    longest_tokens: int | None  # the most that ``--max-model-len`` may be; None: not told
    default_tokens: int | None  # what the engine takes where it is not told


def read_context(config: Mapping[str, Any]) -> ModelContext:
    """Return what the file says of the context. Raises :class:`ModelConfigError` for no count."""
    told = [figure for name in _NAMES if (figure := find_figure(config, name))]
    # Command-R names the length it was extended to apart.
    longest = (
        find_figure(config, "model_max_length")
        or min(told, default=None)
        or find_figure(config, "n_ctx")
        or None
    )
    if longest is None:
        return ModelContext(None, None)
    kinds = [(_kind(rope), rope) for rope in _list_ropes(config)]
    if not str(config.get("model_type")).startswith("gemma3"):  # its figure is scaled already
        factors = [_factor(rope) for kind, rope in kinds if kind not in _ALREADY_SCALED]
        longest = int(longest * (factors[-1] if factors else 1))
    default = longest
    if any(kind == "longrope" for kind, _ in kinds):
        # Long factors cost quality at short lengths, so vLLM serves the short ones unless told.
        default = find_figure(config, "original_max_position_embeddings") or longest
    return ModelContext(longest, min(default, longest))


def _list_ropes(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield how positions are scaled: once, or once for each kind of layer."""
    told = config.get("rope_parameters") or config.get("rope_scaling")
    if not isinstance(told, Mapping):
        return
    nested = [part for part in told.values() if isinstance(part, Mapping)]
    yield from nested or [told]


def _kind(rope: Mapping[str, Any]) -> str:
    kind = str(rope.get("rope_type") or rope.get("type") or "default")
    return "longrope" if kind == "su" else kind


def _factor(rope: Mapping[str, Any]) -> float:
    factor = rope.get("factor")
    if factor is None:
        return 1.0
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1e6:
        raise ModelConfigError(f"the factor of the positions is {factor!r:.40}, which is no factor")
    return float(factor)
