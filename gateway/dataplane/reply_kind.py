"""Whether a reply is a stream, and what is to be changed in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.dataplane.stream_editor import StreamEditor
from gateway.dataplane.stream_usage import StreamUsage
from gateway.openai_schema.requests import CompletionRequest

if TYPE_CHECKING:
    from backends.engine_connection import EngineConnection
    from gateway.dataplane.serving_table import ServedRoute
    from gateway.openai_schema.requests import GenerationRequest


def is_stream(connection: EngineConnection) -> bool:
    """Tell whether the reply whose head is in is a stream of events."""
    content_type = connection.headers.get(b"content-type", b"")
    if content_type == b"application/json":  # as most whole replies say it
        return False
    return connection.status == 200 and content_type[:17].lower() == b"text/event-stream"


def editor_for(
    wanted: GenerationRequest, route: ServedRoute, make: Callable[..., StreamEditor] = StreamEditor
) -> StreamEditor:
    """Return what edits a stream of ``route`` for this request, made by ``make``."""
    options = wanted.stream_options
    wants_usage = options is not None and bool(options.include_usage)
    return make(
        usage=StreamUsage(
            choices_per_prompt=max(wanted.n or 1, 1),
            prompts=wanted.prompts if isinstance(wanted, CompletionRequest) else 1,
        ),
        rename=route.rename,
        hides_total=not wants_usage,
        hides_continuous=not (
            wants_usage and options is not None and options.continuous_usage_stats
        ),
    )
