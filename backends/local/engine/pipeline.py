"""OpenVINO GenAI's continuous batching pipeline, loaded and wrapped: the one place that imports it.

The wrapper hides some of its ways: its tokenizer cuts long prompts in silence, a grammar that it
cannot compile makes the whole step fail, a failed step's requests stay in the pipeline, and a cancelled
request is released by the next step only.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future
from typing import Any

from backends.local.config import EngineSettings
from backends.local.detokenize import Vocabulary
from backends.local.engine.grammar_trial import GrammarTrial
from backends.local.messages import ChatPrompt, Prompt, Sampling, TextPrompt

GREEDY_BELOW = 1e-5  # as vLLM: _SAMPLING_EPS
MIN_TEMPERATURE = 1e-2  # as vLLM: smaller ones overflow
# OpenVINO reads these as 32 bits, in which they must be more than 0, and min_p less than 1.
GREEDY_FROM_MIN_P = 0.999999  # nothing but the most likely token is left
MIN_TOP_P = 1e-30
MIN_REPETITION_PENALTY = 1e-6
_SETTLE_SECONDS = 0.05  # the sampling of a token takes less than a millisecond


class EmptyPromptError(Exception):
    """The prompt has no tokens."""


class PromptTooLongError(Exception):
    """The prompt leaves no room for output; ``tokens`` is at least how many it has."""

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self.tokens = tokens


class InvalidPromptError(Exception):
    """The prompt cannot be made into tokens; the message says why."""


class Generating:
    """One request inside the pipeline."""

    def __init__(self, handle: Any, genai: Any) -> None:
        self._handle = handle
        self._genai = genai

    def read_tokens(self) -> list[int]:
        """Return the token ids produced since the last call."""
        tokens: list[int] = []
        while self._handle.can_read():
            for output in self._handle.read().values():
                tokens.extend(output.generated_ids)
        return tokens

    @property
    def is_out_of_cache(self) -> bool:
        """Whether the pipeline gave it up because the key-value cache cannot hold it."""
        return bool(self._handle.get_status() == self._genai.GenerationStatus.IGNORED)

    @property
    def is_finished(self) -> bool:
        """Whether the pipeline has produced all it will."""
        return bool(self._handle.get_status() == self._genai.GenerationStatus.FINISHED)

    def cancel(self) -> None:
        """Stop it; the pipeline drops it at its next step."""
        self._handle.cancel()


class Pipeline:
    """The loaded model. Not thread-safe: one loop owns it."""

    def __init__(self, settings: EngineSettings) -> None:
        """Load the model; takes seconds. Raises ``RuntimeError`` when OpenVINO cannot."""
        genai = _import_genai()
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = settings.cache_gib
        scheduler.max_num_seqs = settings.max_num_seqs
        scheduler.enable_prefix_caching = True
        properties = {} if settings.threads is None else {"INFERENCE_NUM_THREADS": settings.threads}
        self._genai = genai
        self._pipe = genai.ContinuousBatchingPipeline(
            settings.weights, scheduler, "CPU", properties=properties
        )
        self._tokenizer = self._pipe.get_tokenizer()
        self._context_tokens = settings.context_tokens
        self._encoded: tuple[Prompt, list[int]] | None = None
        self.eos_token_id: int = self._tokenizer.get_eos_token_id()
        self.vocabulary = self._read_vocabulary()
        self._trial = GrammarTrial(genai, self._tokenizer, len(self.vocabulary), self.eos_token_id)

    def _read_vocabulary(self) -> Vocabulary:
        ids = self._tokenizer.get_vocab()
        single = [[token_id] for token_id in range(len(ids))]
        shown = self._tokenizer.decode(single, skip_special_tokens=True)
        whole = self._tokenizer.decode(single, skip_special_tokens=False)
        special = {i for i, (a, b) in enumerate(zip(shown, whole, strict=True)) if a != b}
        return Vocabulary(ids, special)

    def warm_up(self) -> None:
        """Generate a few tokens, so that the first client does not wait 0.4 s for compiled kernels.

        And try a grammar, so that a compiler that does not work shows now. Raises ``RuntimeError``.
        """
        problem = self._trial.find_problem('{"type":"object"}')
        if problem is not None:
            raise RuntimeError(f"the grammar compiler does not work: {problem}")
        prompt = self.encode(TextPrompt("Warm up."))
        generating = self.start(0, prompt, Sampling(max_tokens=2, temperature=0.0), 2)
        while not generating.is_finished:
            self.step()
            generating.read_tokens()

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the prompt's token ids, at least one and fewer than the context; not to be changed.

        The last result is kept: the choices of a request come one after the other. Raises
        :class:`EmptyPromptError`, :class:`PromptTooLongError`, :class:`InvalidPromptError`.
        """
        if self._encoded is None or self._encoded[0] != prompt:
            self._encoded = (prompt, self._encode(prompt))
        return self._encoded[1]

    def _encode(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, ChatPrompt | TextPrompt):
            tokens = self._encode_text(self._text_of(prompt))
        else:
            tokens = list(prompt.token_ids)
            if any(token >= len(self.vocabulary) for token in tokens):
                raise InvalidPromptError("Token ids must be within the model's vocabulary.")
        if not tokens:
            raise EmptyPromptError
        # The tokenizer itself stops at the model's context, so an equal count may stand for more.
        if len(tokens) >= self._context_tokens:
            raise PromptTooLongError(len(tokens))
        return tokens

    def _text_of(self, prompt: ChatPrompt | TextPrompt) -> str:
        if isinstance(prompt, TextPrompt):
            return prompt.text
        turns = [{"role": turn.role, "content": turn.content} for turn in prompt.messages]
        try:
            return str(self._tokenizer.apply_chat_template(turns, add_generation_prompt=True))
        except RuntimeError as error:
            raise InvalidPromptError("The chat template cannot take these messages.") from error

    def _encode_text(self, text: str) -> list[int]:
        data = text.encode("utf-8", "replace")
        at_least = -(-len(data) // self.vocabulary.max_token_bytes)
        if at_least >= self._context_tokens:  # tokenizing megabytes would hold up everyone's step
            raise PromptTooLongError(at_least)
        ids: list[int] = self._tokenizer.encode(data.decode()).input_ids.data[0].tolist()
        return ids

    def start(
        self, sequence_id: int, tokens: list[int], sampling: Sampling, max_tokens: int
    ) -> Generating:
        """Hand a prompt to the pipeline; ``max_tokens`` is the most that it may produce."""
        import numpy as np  # noqa: PLC0415 - comes with OpenVINO; this module must import without
        import openvino  # noqa: PLC0415

        input_ids = openvino.Tensor(np.array([tokens], dtype=np.int64))
        config = self._generation_config(sampling, max_tokens)
        return Generating(self._pipe.add_request(sequence_id, input_ids, config), self._genai)

    def _generation_config(self, sampling: Sampling, max_tokens: int) -> Any:
        config = self._genai.GenerationConfig()
        config.max_new_tokens = max_tokens
        config.min_new_tokens = min(sampling.min_tokens, max_tokens)
        config.eos_token_id = self.eos_token_id
        config.stop_token_ids = {self.eos_token_id}
        config.ignore_eos = sampling.is_eos_ignored
        config.presence_penalty = sampling.presence_penalty
        config.frequency_penalty = sampling.frequency_penalty
        config.repetition_penalty = max(sampling.repetition_penalty, MIN_REPETITION_PENALTY)
        is_greedy = sampling.temperature < GREEDY_BELOW or sampling.min_p >= GREEDY_FROM_MIN_P
        config.do_sample = not is_greedy
        if config.do_sample:
            config.temperature = max(sampling.temperature, MIN_TEMPERATURE)
            config.top_p = max(sampling.top_p, MIN_TOP_P)
            config.min_p = sampling.min_p
            config.rng_seed = sampling.seed
            if sampling.top_k > 0:
                config.top_k = sampling.top_k
        if sampling.json_schema is not None:
            structured = self._genai.StructuredOutputConfig()
            structured.json_schema = sampling.json_schema
            config.structured_output_config = structured
        return config

    def start_grammar_trial(self, json_schema: str) -> Future[str | None]:
        """Compile a schema's grammar in a thread; the result is what is wrong with it, or None.

        Before its result a grammar must not be used in a request: one that cannot be compiled makes a
        step fail.
        """
        return self._trial.start(json_schema)

    def step(self) -> None:
        """Generate at most one token for each request, or drop cancelled ones.

        Raises what OpenVINO throws; then :meth:`drop_cancelled` is the only way on.
        """
        if self._pipe.has_non_finished_requests():
            self._pipe.step()

    def drop_cancelled(self) -> None:
        """After a failed step, and once every request has been cancelled: be as if it had not been.

        A step with nothing to schedule ends before the part that failed, and releases what has been
        cancelled. Raises ``RuntimeError`` when something is left.
        """
        time.sleep(_SETTLE_SECONDS)  # threads that the failed step began may still sample
        self.step()
        if self._pipe.has_non_finished_requests():
            raise RuntimeError("the pipeline holds requests that were cancelled")

    @property
    def kv_cache_usage(self) -> float:
        """The share of key-value blocks that the last step used, 0..1."""
        return float(self._pipe.get_metrics().cache_usage) / 100  # OpenVINO counts in percent


def _import_genai() -> Any:
    """Import OpenVINO GenAI without its telemetry.

    ``import openvino`` would send an "import" event and write an id to the home directory; a None in
    ``sys.modules`` makes the telemetry package look absent, and OpenVINO then uses its own stub.
    """
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    import openvino_genai  # noqa: PLC0415 - heavy, and wanted in the engine process only

    return openvino_genai
