"""Options of deployments, replicas and routes, and how they become fields of a request."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from gateway.cli.control_client import ControlClient
from gateway.cli.errors import CliError, RefusedError

DeploymentArgument = Annotated[
    str, typer.Argument(metavar="DEPLOYMENT", help="The deployment's name or id.")
]
ReplicaArgument = Annotated[
    str, typer.Argument(metavar="REPLICA_ID", help="The replica's id, rep_….")
]
RouteArgument = Annotated[str, typer.Argument(metavar="ROUTE", help="The public name, or the id.")]
ResetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reset",
        metavar="FIELD",
        help="Back to its default, like sleep.keep_warm_seconds; repeat.",
    ),
]

# Of a deployment
MaxInFlightOption = Annotated[
    int | None,
    typer.Option(min=0, help="Requests that a replica serves at a time; 0: nothing is served."),
]
ContextOption = Annotated[
    int | None, typer.Option("--context-tokens", min=1, help="Prompt and output together.")
]
FeatureOption = Annotated[
    list[str] | None,
    typer.Option(
        help="chat, completions, embeddings, tools, vision or json_schema; repeat it."
        " Without any: what the engine says."
    ),
]
AdapterOption = Annotated[
    list[str] | None, typer.Option(help="LoRA adapter that the engines serve; repeat it.")
]
PickOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SCORE=WEIGHT",
        help="load, kv_room, prefix, latency, session or adapter; 0 leaves it out. Repeat it.",
    ),
]
BreakerOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=NUMBER", help="failures, failure_share or open_seconds; repeat it."
    ),
]
KeepWarmOption = Annotated[
    float | None,
    typer.Option("--keep-warm-seconds", min=0, help="Unused for so long, it sleeps."),
]
WakeLimitOption = Annotated[
    float | None,
    typer.Option("--wake-limit-seconds", min=0, help="A request waits so long for it to wake."),
]
RetryShareOption = Annotated[
    float | None, typer.Option(min=0, max=1, help="Retries, of all requests: 0.1 is a tenth.")
]
FirstTokenOption = Annotated[
    float | None,
    typer.Option(
        "--first-token-timeout-seconds", help="An engine's silence before a stream's content."
    ),
]
IdleOption = Annotated[
    float | None,
    typer.Option("--idle-timeout-seconds", help="An engine's silence inside a stream."),
]
ReplyOption = Annotated[
    float | None,
    typer.Option("--reply-timeout-seconds", help="An engine's silence before a whole answer."),
]

# Of a replica
WeightOption = Annotated[
    float | None,
    typer.Option(min=0, help="Share beside its siblings; 0: only when no other can serve."),
]
SecretOption = Annotated[
    typer.FileText | None,
    typer.Option(
        "--secret-file",
        help='Holds the bearer token that the engine asks for; "-": standard input.',
    ),
]
LabelOption = Annotated[
    list[str] | None, typer.Option("--label", metavar="NAME=TEXT", help="For people; repeat it.")
]
AgentOption = Annotated[
    str | None,
    typer.Option("--agent-url", metavar="URL", help="Of what starts, wakes and stops the engine."),
]

# Of a route
FallbackOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ROUTE", help="Tried when this one cannot serve, in this order; repeat it."
    ),
]
PriorityOption = Annotated[
    str | None, typer.Option("--queue-priority", help="interactive or batch.")
]
SizeOption = Annotated[int | None, typer.Option("--queue-size", min=0, help="0: none waits.")]
DeadlineOption = Annotated[
    float | None, typer.Option("--queue-deadline-seconds", help="A request waits no longer.")
]


def deployment_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the options of ``create`` and ``set`` set, by the API's fields."""
    return {
        "name": values["name"],
        "engine_model": values["engine_model"],
        "max_in_flight": values["max_in_flight"],
        "capabilities.context_tokens": values["context_tokens"],
        "capabilities.features": values["feature"] or None,
        "capabilities.adapters": values["adapter"] or None,
        "pick": parse_numbers(values["pick"], "--pick"),
        "breaker": parse_numbers(values["breaker"], "--breaker"),
        "sleep.keep_warm_seconds": values["keep_warm_seconds"],
        "sleep.wake_limit_seconds": values["wake_limit_seconds"],
        "retry_share": values["retry_share"],
        "first_token_timeout_seconds": values["first_token_timeout_seconds"],
        "idle_timeout_seconds": values["idle_timeout_seconds"],
        "reply_timeout_seconds": values["reply_timeout_seconds"],
    }


def collect(given: Mapping[str, Any], reset: Iterable[str] | None = None) -> dict[str, Any]:
    """Return a request's fields: ``sleep.x`` as ``{"sleep": {"x": …}}``, without what is None.

    What ``reset`` names is null. Raises :class:`CliError` for what is both given and reset.
    """
    fields: dict[str, Any] = {}
    for path, value in given.items():
        if value is not None:
            _put(fields, path, value)
    for path in reset or ():
        _put(fields, path.replace("-", "_"), None)
    return fields


def _put(fields: dict[str, Any], path: str, value: Any) -> None:
    part, _, field = path.partition(".")
    within: Any = fields.setdefault(part, {}) if field else fields
    name = field or part
    if not isinstance(within, dict) or name in within:
        raise CliError(f"{path} is both given and reset, or given twice.")
    within[name] = value


def parse_numbers(texts: Sequence[str] | None, option: str) -> dict[str, float] | None:
    """Return ``NAME=NUMBER`` options as a mapping. Raises :class:`CliError`."""
    if not texts:
        return None
    return {name: _number(text, option) for name, text in parse_pairs(texts, option)}


def read_secret(file: typer.FileText | None) -> str | None:
    """Return what the file holds; on the command line every process could read it."""
    return None if file is None else file.read().strip()


def parse_labels(texts: Sequence[str] | None) -> dict[str, str] | None:
    """Return ``NAME=TEXT`` options as a mapping. Raises :class:`CliError`."""
    return dict(parse_pairs(texts, "--label")) if texts else None


def parse_pairs(texts: Sequence[str], option: str) -> list[tuple[str, str]]:
    """Return ``NAME=VALUE`` options as they were given. Raises :class:`CliError`."""
    pairs = [text.partition("=") for text in texts]
    for (name, sign, _), text in zip(pairs, texts, strict=True):
        if not (name and sign):
            raise CliError(f"{option} {text!r} is not of the form NAME=VALUE.")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise CliError(f"{option} names something twice.")
    return [(name, value) for name, _, value in pairs]


def _number(text: str, option: str) -> float:
    """Return the number, a whole one as an int: the control API takes no 3.0 for a count."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            number = kind(text)
            if math.isfinite(number):
                return number
    raise CliError(f"{option}: {text!r} is no number.")


def get_by_id_or_name(client: ControlClient, kind: str, id_or_name: str) -> dict[str, Any]:
    """Return the one of ``deployments`` or ``routes`` with this id, else with this name.

    By the list: a name may hold what a path cannot. Raises :class:`RefusedError`.
    """
    rows: list[dict[str, Any]] = client.get(f"/{kind}")["data"]
    for field in ("id", "name"):
        for row in rows:
            if row[field] == id_or_name:
                return row
    raise RefusedError(f"There is no {kind.removesuffix('s')} {id_or_name!r}.")


def write_settings(fields: Mapping[str, Any] | None) -> str | None:
    """Return what was set of some fields as ``a=1, b=2``; None where nothing was."""
    texts = [
        f"{name}={write_number(value)}"
        for name, value in (fields or {}).items()
        if value is not None
    ]
    return ", ".join(texts) or None


def write_number(value: Any) -> Any:
    """Return a whole float as a whole number: a weight of 1, not 1.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
