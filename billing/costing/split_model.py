"""Over how many GPUs a model can be split (tensor parallel), as vLLM decides it. Pure."""

from __future__ import annotations

from billing.costing.roofline import Served

SPLITS = (1, 2, 4, 8)


def find_split_fault(served: Served) -> str | None:
    """Return why the model cannot be split this way, None if it can."""
    shape, parallel = served.shape, served.tensor_parallel
    if shape.heads % parallel:
        return f"{shape.heads} attention heads do not divide by {parallel}"
    if shape.latent is None and shape.kv_heads % parallel and parallel % shape.kv_heads:
        return f"{shape.kv_heads} key-value heads cannot be split or copied over {parallel} GPUs"
    for name, width in _widths(served):
        if width % parallel:
            return f"{name} of {width} does not divide by {parallel}"
        group = None if served.quantization.is_of_experts_only else served.quantization.group
        if group and width // parallel % group:
            return (
                f"{name} of {width} over {parallel} GPUs is no multiple of the group of {group}: "
                "4-bit kernels refuse it"
            )
    return None


def _widths(served: Served) -> list[tuple[str, int]]:
    shape, experts = served.shape, served.shape.experts
    widths = []
    if experts is None or experts.layers < shape.layers:
        widths.append(("the feed-forward width", shape.dense_width))
    if experts is not None:
        widths.append(("the experts' width", experts.expert_width))
        if experts.shared_width:
            widths.append(("the shared experts' width", experts.shared_width))
    return widths
