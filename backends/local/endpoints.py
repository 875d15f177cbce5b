"""POST /v1/chat/completions and /v1/completions: body → checks → engine → reply."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backends.local.config import LocalEngineConfig
from backends.local.engine_client import EngineClient
from backends.local.errors import (
    ApiError,
    ClientGoneError,
    UnknownModelError,
    UnsupportedError,
)
from backends.local.generation import Generation, cancelled_on_disconnect
from backends.local.messages import Prompt, Sampling
from backends.local.prompts import chat_prompt, completion_prompts
from backends.local.read_body import read_body
from backends.local.reply import ReplyHead, new_reply_id, now_seconds, stream_events, whole_reply
from backends.local.request_schema import ChatRequest, CompletionRequest, GenerationRequest
from backends.local.sampling_checks import (
    chat_limit,
    check_sequence_count,
    get_choice_count,
    get_sampling,
    with_choice_seed,
)

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's and vLLM's default on /v1/completions
CLIENT_CLOSED_REQUEST = 499


class GenerationEndpoints:
    """The two endpoints that make text."""

    def __init__(self, config: LocalEngineConfig, client: EngineClient) -> None:
        self._config = config
        self._client = client

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        self._client.check_ready()
        body = await read_body(request, ChatRequest)
        self._check_model_and_stream(body)
        _check_chat_only(body)
        member, limit = chat_limit(body)
        sampling = get_sampling(body, limit, self._config.context_tokens, limit_member=member)
        prompt = chat_prompt(body.messages, self._config.model_name)
        return await self._answer(request, body, [prompt], sampling, is_chat=True)

    async def completion(self, request: Request) -> Response:
        """POST /v1/completions."""
        self._client.check_ready()
        body = await read_body(request, CompletionRequest)
        self._check_model_and_stream(body)
        _check_completion_only(body)
        wanted = DEFAULT_COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
        sampling = get_sampling(body, wanted, self._config.context_tokens)
        return await self._answer(
            request, body, completion_prompts(body.prompt), sampling, is_chat=False
        )

    def _check_model_and_stream(self, body: GenerationRequest) -> None:
        if body.stream_options is not None and not body.stream:
            message = (
                "Stream options can only be defined when `stream=True`. (parameter=stream_options)"
            )
            raise ApiError(400, message, param="stream_options")
        if body.model is not None and body.model != self._config.model_name:
            raise UnknownModelError(body.model, self._config.model_name)

    async def _answer(
        self,
        request: Request,
        body: GenerationRequest,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        *,
        is_chat: bool,
    ) -> Response:
        choices = get_choice_count(body)
        check_sequence_count(len(prompts), choices)
        options = body.stream_options
        has_usage = bool(options and options.include_usage)
        head = ReplyHead(
            id=new_reply_id("chatcmpl" if is_chat else "cmpl", request.headers),
            created=now_seconds(),
            model=self._config.model_name,
            is_chat=is_chat,
            choices_per_prompt=choices,
            has_usage=has_usage,
            has_continuous_usage=has_usage and bool(options and options.continuous_usage_stats),
        )
        generation = self._client.submit(
            [prompt for prompt in prompts for _ in range(choices)],
            [with_choice_seed(sampling, choice) for _ in prompts for choice in range(choices)],
        )
        if body.stream:
            return await _stream(request, head, generation)
        return await _whole(request, head, generation)


async def _stream(request: Request, head: ReplyHead, generation: Generation) -> Response:
    try:
        prompt_tokens = await generation.prompt_tokens()
    except BaseException:
        generation.cancel()
        raise
    return EventStream(generation, stream_events(head, generation, prompt_tokens))


async def _whole(request: Request, head: ReplyHead, generation: Generation) -> Response:
    async with cancelled_on_disconnect(request.receive, generation):
        try:
            prompt_tokens = await generation.prompt_tokens()
            content = await whole_reply(head, generation, prompt_tokens)
        except ClientGoneError:
            return Response(status_code=CLIENT_CLOSED_REQUEST)  # nobody reads it
    return Response(content, media_type="application/json")


def _check_chat_only(body: ChatRequest) -> None:
    if body.logprobs or body.top_logprobs:
        raise UnsupportedError("logprobs", "logprobs")
    if not body.tools and body.tool_choice not in (None, "none"):
        raise ApiError(400, "When using `tool_choice`, `tools` must be set.", param="tool_choice")
    if body.tools and body.tool_choice != "none":
        raise UnsupportedError("tools", 'tools, unless tool_choice is "none"')
    if body.echo:
        raise UnsupportedError("echo", "echo")


def _check_completion_only(body: CompletionRequest) -> None:
    if body.logprobs is not None:
        raise UnsupportedError("logprobs", "logprobs")
    if body.echo:
        raise UnsupportedError("echo", "echo")
    if body.suffix:
        raise UnsupportedError("suffix", "suffix")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise UnsupportedError("best_of", "best_of")


class EventStream(Response):
    """Server-sent events, one write each; cancels the generation when the client leaves."""

    media_type = "text/event-stream"

    def __init__(self, generation: Generation, events: AsyncGenerator[bytes]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._generation = generation
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream (ASGI)."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        async with cancelled_on_disconnect(receive, self._generation):
            await send(start)
            try:
                async with aclosing(self._events) as events:
                    async for event in events:
                        await send({"type": "http.response.body", "body": event, "more_body": True})
            except ClientGoneError:
                return
        await send({"type": "http.response.body", "body": b""})
