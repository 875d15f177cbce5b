"""``forebay plan``: which GPUs a model fits, what they can carry at most, and what binds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.costing_files import read_text, refusing
from gateway.cli.errors import CliError
from gateway.cli.options import JsonOption
from gateway.cli.output import Columns, print_json, print_table

if TYPE_CHECKING:
    from billing.costing.capacity import CapacityPlan, Wish
    from billing.costing.model_shape import ModelShape
    from billing.costing.quantization import Quantization

ConfigArgument = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="A model's config.json, or its directory.")
]
GpuOption = Annotated[
    list[str] | None, typer.Option("--gpu", help="May be repeated. Default: all that are known.")
]
ParallelOption = Annotated[
    list[int] | None,
    typer.Option(
        "--tensor-parallel", help="GPUs a replica; may be repeated. Default: as few as fit."
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option("--weights", help="bf16, fp8, int8, int4, awq, gptq, mxfp4. Default: as stored."),
]
_TABLE: Columns = (
    ("GPU", "gpu"),
    ("TP", "tensor_parallel"),
    ("WEIGHTS GB", "weight_gb_per_gpu"),
    ("KV GB", "kv_gb_per_gpu"),
    ("LONGEST", "longest_tokens"),
    ("SEQUENCES", "sequences"),
    ("DECODE TOK/S", "decode_tokens_per_second"),
    ("TPOT MS", "tpot_ms"),
    ("ALONE TOK/S", "single_tokens_per_second"),
    ("PREFILL TOK/S", "prefill_tokens_per_second"),
    ("REQ/S", "requests_per_second"),
    ("BOUND", "bound"),
)
_GPU_TABLE: Columns = (
    ("GPU", "name"),
    ("MEMORY GB", "memory_gb"),
    ("GB/S", "bandwidth_gb_per_second"),
    ("BF16 TFLOPS", "bf16_tflops"),
    ("FP8 TFLOPS", "fp8_tflops"),
    ("INT8 TOPS", "int8_tops"),
)


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model, how it is to be held in memory, and how it lies on disk."""

    shape: ModelShape
    weights: Quantization
    kv_cache: str
    stored_as: str


def plan(
    config: ConfigArgument,
    *,
    gpu: GpuOption = None,
    tensor_parallel: ParallelOption = None,
    weights: WeightsOption = None,
    group: Annotated[int | None, typer.Option(help="Weights that share a scale.")] = None,
    kv_cache: Annotated[str, typer.Option(help="bf16 or fp8.")] = "bf16",
    input_tokens: Annotated[int, typer.Option("--input", min=0, help="Of a mean request.")] = 1000,
    output_tokens: Annotated[int, typer.Option("--output", min=1, help="Of a mean one.")] = 300,
    context: Annotated[
        int | None, typer.Option(min=1, help="Tokens of the longest request that must fit.")
    ] = None,
    memory_share: Annotated[float, typer.Option(help="vLLM's --gpu-memory-utilization.")] = 0.9,
    max_sequences: Annotated[int | None, typer.Option(min=1, help="At once, at most.")] = None,
    tpot_ms: Annotated[
        float | None, typer.Option(min=0, help="The longest wait between tokens.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan a replica on paper: memory, sequences at once, and the most tokens a second.

    Ceilings from bandwidth and arithmetic of the GPUs' data sheets; a measured replica reaches some
    60 to 80 % of them.
    """
    from billing.costing.capacity import Mix, Wish

    shape, stored = read_model(config)
    with refusing():
        wish = Wish(
            mix=Mix(input_tokens, output_tokens),
            context_tokens=context,
            memory_share=memory_share,
            max_sequences=max_sequences,
            tpot_seconds=None if tpot_ms is None else tpot_ms / 1000,
        )
        chosen = _choose_weights(weights, group, stored)
        model = PlannedModel(shape, chosen, kv_cache, stored.name)
        plans = list_plans(model, wish, gpu, tensor_parallel)
        told = describe(model, plans, wish)
    if as_json:
        print_json(told)
    else:
        _print(told, has_flags=bool(gpu))


def show_gpus(as_json: JsonOption = False) -> None:
    """List the GPUs that plans know, with the dense figures of their data sheets."""
    from dataclasses import asdict

    from billing.costing.gpus import GPUS

    rows = [asdict(gpu) for gpu in GPUS]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, _GPU_TABLE, empty="")


def read_model(path: Path) -> tuple[ModelShape, Quantization]:
    """Return the model's shape and how its weights are stored. Raises :class:`CliError`."""
    import json

    from billing.costing.quantization import read_quantization
    from billing.costing.read_model_config import read_model_config

    path = path / "config.json" if path.is_dir() else path
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise CliError(f"{path} is no JSON") from error
    if not isinstance(content, dict):
        raise CliError(f"{path} is no model's config.json")
    with refusing():
        name = path.parent.name or path.stem
        return read_model_config(content, name=name), read_quantization(content)


def _choose_weights(name: str | None, group: int | None, stored: Quantization) -> Quantization:
    from billing.costing.quantization import get_quantization

    if name not in (None, stored.name):
        return get_quantization(name, group=group)
    if group is None:
        return stored
    return replace(get_quantization(stored.name, group=group), kept=stored.kept)


def list_plans(
    model: PlannedModel, wish: Wish, gpus: list[str] | None, parallels: list[int] | None
) -> list[CapacityPlan]:
    """Return a plan for each GPU and split; without splits, of each GPU the smallest that works."""
    from billing.costing.capacity import plan_capacity
    from billing.costing.gpus import GPUS, get_gpu
    from billing.costing.roofline import Served
    from billing.costing.split_model import SPLITS

    found = []
    for gpu in [get_gpu(name) for name in gpus] if gpus else GPUS:
        plans = [
            plan_capacity(Served(model.shape, gpu, model.weights, model.kv_cache, parallel), wish)
            for parallel in parallels or SPLITS
        ]
        working = [plan for plan in plans if plan.fault is None]
        found += plans if parallels else (working or plans)[:1]
    return found


def describe(model: PlannedModel, plans: list[CapacityPlan], wish: Wish) -> dict[str, Any]:
    """Return the model's figures and the plans as JSON has them."""
    from billing.costing.kv_cache import kv_bytes
    from billing.costing.propose_flags import explain_bounds, propose_flags
    from billing.costing.weights import count_active, count_weights, weight_bytes

    shape, kv_cache = model.shape, model.kv_cache
    return {
        "model": shape.name,
        "parameters": count_weights(shape).total,
        "active_parameters": count_active(shape),
        "weights": model.weights.name,
        "weight_bytes": weight_bytes(shape, model.weights),
        "kv_cache": kv_cache,
        "kv_bytes_per_token": kv_bytes(shape, sequence=1, batch=1, dtype=kv_cache),
        "kv_bytes_longest": kv_bytes(shape, sequence=wish.longest, batch=1, dtype=kv_cache),
        "longest_tokens": wish.longest,
        "notes": list(shape.notes),
        "plans": [
            {
                **_row(plan),
                "explanation": explain_bounds(plan),
                "flags": propose_flags(plan, wish, stored_as=model.stored_as),
            }
            for plan in plans
        ],
    }


def _row(plan: CapacityPlan) -> dict[str, Any]:
    ceilings = plan.ceilings
    row: dict[str, Any] = {
        "gpu": plan.served.gpu.name,
        "tensor_parallel": plan.served.tensor_parallel,
        "weight_gb_per_gpu": round(plan.weight_bytes_per_gpu / 1e9, 1),
        "kv_gb_per_gpu": round(plan.kv_room_per_gpu / 1e9, 1),
    }
    if ceilings is None:
        return row | {"bound": plan.fault}
    return row | {
        "kv_tokens": ceilings.kv_tokens,
        "longest_tokens": ceilings.longest_tokens,
        "sequences": ceilings.sequences,
        "decode_tokens_per_second": round(ceilings.step.tokens_per_second),
        "tpot_ms": round(ceilings.step.seconds * 1000, 2),
        "single_tokens_per_second": round(ceilings.single_step.tokens_per_second, 1),
        "prefill_tokens_per_second": round(ceilings.prefill_tokens_per_second),
        "requests_per_second": round(ceilings.requests_per_second, 2),
        "batch_bound": ceilings.batch_bound,
        "step_bound": ceilings.step.bound,
        "decode_share": round(ceilings.decode_share, 3),
        "bound": f"{ceilings.batch_bound}, {ceilings.step.bound}",
    }


def _print(told: dict[str, Any], *, has_flags: bool) -> None:
    print(
        f"{told['model']}: {told['parameters'] / 1e9:.2f} billion parameters, "
        f"{told['active_parameters'] / 1e9:.2f} used a token; "
        f"{told['weight_bytes'] / 1e9:.1f} GB of weights as {told['weights']}; "
        f"{told['kv_bytes_longest'] / 1e9:.3f} GB of cache for {told['longest_tokens']} tokens "
        f"as {told['kv_cache']}."
    )
    for note in told["notes"]:
        print(f"Note: {note}.")
    print()
    print_table(told["plans"], _TABLE, empty="")
    print()
    if not has_flags:
        print("With --gpu: which bound binds, in words, and the flags for vLLM.")
        return
    for plan in told["plans"]:
        print(f"{plan['gpu']} x {plan['tensor_parallel']}: {plan['explanation']}")
        if plan["flags"]:
            print(f"  vllm serve MODEL {' '.join(plan['flags'])}")
