"""The vLLM options that a plan amounts to, and what it says in a sentence. Pure."""

from __future__ import annotations

from billing.costing.capacity import CapacityPlan, Wish

_BATCH = {
    "kv_memory": "the memory left for keys and values bounds how many sequences run at once",
    "max_num_seqs": "the number of sequences that was asked for is the bound; memory has more room",
    "tpot": "the wait between tokens bounds how many sequences run at once",
}
_STEP = {
    "bandwidth": "each step waits for memory bandwidth",
    "compute": "each step waits for arithmetic",
}


def propose_flags(plan: CapacityPlan, wish: Wish, *, stored_as: str) -> list[str]:
    """Return options for ``vllm serve``; none for a plan with a fault.

    ``stored_as`` names the format in which the weights lie on disk: only where the plan's differs
    does the engine have to be told (vLLM reads the rest from the model's files).
    """
    if plan.ceilings is None:
        return []
    served, longest = plan.served, None
    if wish.context_tokens is not None:
        longest = wish.longest  # room for a request of the mix must be there in any case
    elif plan.ceilings.longest_tokens != served.shape.default_context_tokens:
        # The model's own length does not fit, or the engine takes a shorter one unless told.
        longest = plan.ceilings.longest_tokens
    flags = [] if longest is None else ["--max-model-len", str(longest)]
    flags += ["--gpu-memory-utilization", f"{wish.memory_share:g}"]
    flags += ["--max-num-seqs", str(plan.ceilings.sequences)]
    if served.tensor_parallel > 1:
        flags += ["--tensor-parallel-size", str(served.tensor_parallel)]
    if served.kv_dtype != "bf16":
        flags += ["--kv-cache-dtype", served.kv_dtype]
    if served.quantization.name == "fp8" and stored_as == "bf16":
        flags += ["--quantization", "fp8"]  # vLLM quantizes while it loads
    return flags


def explain_bounds(plan: CapacityPlan) -> str:
    """Return which bound binds, in a sentence."""
    ceilings = plan.ceilings
    if ceilings is None:
        return f"It does not work: {plan.fault}."
    share = ceilings.decode_share
    spent = "decoding" if share >= 0.5 else "prefill"
    part = round(100 * max(share, 1 - share))
    text = f"{_BATCH[ceilings.batch_bound]}; {_STEP[ceilings.step.bound]}; "
    return text[0].upper() + text[1:] + f"{part} % of the time is {spent}."
