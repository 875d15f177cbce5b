"""How many parameters a model has, how many a token goes through, and how many bytes that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from billing.costing.kept_modules import Part, count_kept
from billing.costing.model_shape import ExpertLayers, ModelShape
from billing.costing.quantization import Quantization

_SIXTEEN_BITS = 2  # bytes


@dataclass(frozen=True, slots=True)
class WeightCounts:
    """Parameters by what becomes of them. Biases are left out: below a thousandth."""

    input_embedding: int  # one row is read a token, so it costs memory and no traffic
    output_matrix: int  # 0 where it is the embedding (it is read all the same)
    layer_matrices: int  # of all layers, experts left out: quantized
    routed_experts: int  # of all layers: quantized
    small: int  # norms and routers: 16 bits
    output_read: int  # what the output matrix reads each step, tied or not

    @property
    def total(self) -> int:
        """All parameters."""
        return (
            self.input_embedding
            + self.output_matrix
            + self.layer_matrices
            + self.routed_experts
            + self.small
        )


def count_weights(shape: ModelShape) -> WeightCounts:
    """Return the parameters of ``shape``."""
    embedding = shape.vocabulary * shape.hidden
    experts = shape.experts
    matrices = 3 if shape.has_gated_feed_forward else 2
    expert_layers = experts.layers if experts else 0
    dense = (shape.layers - expert_layers) * matrices * shape.hidden * shape.dense_width
    shared = routers = 0
    if experts:
        shared = expert_layers * matrices * shape.hidden * experts.shared_width
        routers = expert_layers * shape.hidden * experts.experts
    return WeightCounts(
        input_embedding=embedding,
        output_matrix=0 if shape.has_tied_embeddings else embedding,
        layer_matrices=shape.layers * _attention(shape) + dense + shared,
        routed_experts=expert_layers * experts.experts * _expert(shape, experts) if experts else 0,
        small=routers + (2 * shape.layers + 1) * shape.hidden,
        output_read=embedding,
    )


def count_active(shape: ModelShape) -> int:
    """Return the parameters that one token is multiplied with: experts that it is not sent to,
    and the input embedding, are left out."""
    counts = count_weights(shape)
    return counts.layer_matrices + _active_experts(shape) + counts.small + counts.output_read


def weight_bytes(shape: ModelShape, quantization: Quantization) -> int:
    """Return the bytes of all weights in memory."""
    counts = count_weights(shape)
    bits = _BitsPerPart.of(shape, quantization, counts)
    kept = counts.input_embedding + counts.output_matrix + counts.small
    quantized = counts.layer_matrices * bits.matrices + counts.routed_experts * bits.experts
    return round(kept * _SIXTEEN_BITS + quantized / 8)


def bytes_read_per_step(shape: ModelShape, quantization: Quantization, batch: float) -> float:
    """Return the bytes of weights that one decode step of ``batch`` sequences reads.

    Dense weights are read once for the whole batch. Of experts those are read that at least one
    token is sent to: the expectation, tokens being sent evenly, grows from the active ones at
    batch 1 to all of them.
    """
    counts = count_weights(shape)
    bits = _BitsPerPart.of(shape, quantization, counts)
    kept = counts.output_read + counts.small
    read = counts.routed_experts * share_of_experts(shape, batch)
    quantized = counts.layer_matrices * bits.matrices + read * bits.experts
    return kept * _SIXTEEN_BITS + quantized / 8


@dataclass(frozen=True, slots=True)
class _BitsPerPart:
    """Mean bits of a weight, what stays at 16 bits included."""

    matrices: float  # of the layers, experts left out
    experts: float

    @classmethod
    def of(cls, shape: ModelShape, quantization: Quantization, counts: WeightCounts) -> Self:
        sizes = _sizes(shape)
        experts: dict[Part, int] = {"experts": sizes.pop("experts")}
        kept = count_kept(shape, quantization.kept, sizes)
        if quantization.is_of_experts_only:
            kept = counts.layer_matrices
        return cls(
            _mix_bits(quantization, kept, counts.layer_matrices),
            _mix_bits(
                quantization,
                count_kept(shape, quantization.kept, experts),
                counts.routed_experts,
            ),
        )


def _mix_bits(quantization: Quantization, kept: int, total: int) -> float:
    """Return the mean bits where ``kept`` of ``total`` weights stay at 16."""
    share = kept / total if total else 0.0
    return share * 8 * _SIXTEEN_BITS + (1 - share) * quantization.bits_per_weight


def _sizes(shape: ModelShape) -> dict[Part, int]:
    """Return the parameters of each part in one layer that has it."""
    experts = shape.experts
    matrices = 3 if shape.has_gated_feed_forward else 2
    return {
        "attention": _attention(shape),
        "feed_forward": matrices * shape.hidden * shape.dense_width,
        "experts": experts.experts * _expert(shape, experts) if experts else 0,
        "shared": matrices * shape.hidden * experts.shared_width if experts else 0,
    }


def share_of_experts(shape: ModelShape, batch: float) -> float:
    """Return the expected share of a layer's experts that a batch of tokens wakes: 0 to 1."""
    experts = shape.experts
    if experts is None:
        return 0.0
    missed = 1.0 - experts.active_experts / experts.experts
    return 1.0 - missed**batch if missed else 1.0


def _attention(shape: ModelShape) -> int:
    """Return the parameters of one layer's attention."""
    latent = shape.latent
    if latent is None:
        queries_and_output = 2 * shape.hidden * shape.heads * shape.head_dim
        keys_and_values = 2 * shape.hidden * shape.kv_heads * shape.head_dim
        return queries_and_output + keys_and_values
    query_dim = shape.heads * (latent.qk_nope_head_dim + latent.qk_rope_head_dim)
    if latent.q_lora_rank:
        queries = latent.q_lora_rank * (shape.hidden + query_dim)
    else:
        queries = shape.hidden * query_dim
    compress = shape.hidden * (latent.kv_lora_rank + latent.qk_rope_head_dim)
    expand = latent.kv_lora_rank * shape.heads * (latent.qk_nope_head_dim + latent.v_head_dim)
    return queries + compress + expand + shape.heads * latent.v_head_dim * shape.hidden


def _expert(shape: ModelShape, experts: ExpertLayers) -> int:
    matrices = 3 if shape.has_gated_feed_forward else 2
    return matrices * shape.hidden * experts.expert_width


def _active_experts(shape: ModelShape) -> int:
    experts = shape.experts
    if experts is None:
        return 0
    return experts.layers * experts.active_experts * _expert(shape, experts)
