"""The shape of a language model, as far as memory and arithmetic depend on it. Plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek): one compressed vector a token and layer is kept."""

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None  # None: queries are not compressed


@dataclass(frozen=True, slots=True)
class ExpertLayers:
    """The layers whose feed-forward part is a mixture of experts."""

    layers: int  # of all of the model's layers
    experts: int  # routed experts a layer
    active_experts: int  # routed experts that one token goes through
    expert_width: int  # intermediate size of one expert
    shared_width: int  # intermediate size of all experts that every token goes through; 0: none


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder. Widths are numbers of elements."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    dense_width: int  # intermediate size of a feed-forward part without experts
    vocabulary: int
    has_tied_embeddings: bool
    has_gated_feed_forward: bool  # three matrices (SwiGLU) instead of two
    latent: LatentAttention | None = None
    experts: ExpertLayers | None = None
    window: int | None = None  # tokens that a layer with a sliding window looks back
    window_layers: int = 0  # how many of the layers have one
    context_tokens: int | None = None  # the longest sequence that the engine accepts for it
    default_context_tokens: int | None = None  # what the engine takes where it is not told
    notes: tuple[str, ...] = ()  # what a person has to know of how it was counted

    @property
    def full_layers(self) -> int:
        """Layers that keep every token of the sequence."""
        return self.layers - self.window_layers
