"""One prompt being continued: its tokens, its text so far, and when it ends."""

from __future__ import annotations

from backends.local.detokenize import TextDecoder, Vocabulary
from backends.local.engine.pipeline import Generating
from backends.local.messages import Produced, Sampling
from backends.local.stop_strings import StopMatcher


class Sequence:
    """State of one sequence from submission to end; sees each token once, in order."""

    def __init__(
        self,
        sequence_id: int,
        request_id: int,
        prompt: list[int],
        sampling: Sampling,
        *,
        max_tokens: int,
        eos_token_id: int,
        vocabulary: Vocabulary,
    ) -> None:
        self.sequence_id = sequence_id
        self.request_id = request_id
        self.prompt = prompt
        self.sampling = sampling
        self.max_tokens = max_tokens
        self.output_tokens = 0
        self.generating: Generating | None = None  # None while it waits
        self.read_tokens = 0  # of a long prompt, how many the key-value cache has been given
        self._eos_token_id = eos_token_id
        self._decoder = TextDecoder(vocabulary)
        self._matcher = StopMatcher(sampling.stop_strings, is_kept=sampling.is_stop_string_kept)

    def take(self, tokens: list[int]) -> Produced:
        """Add what a step produced; tokens after the end are neither shown nor counted."""
        text = ""
        for token in tokens:
            self.output_tokens += 1
            piece, finish_reason, stop_reason = self._take_one(token)
            text += piece
            if finish_reason is not None:
                return self._produced(text, finish_reason, stop_reason)
        return self._produced(text, None, None)

    def _take_one(self, token: int) -> tuple[str, str | None, str | int | None]:
        may_stop = self.output_tokens > self.sampling.min_tokens
        if token == self._eos_token_id and not self.sampling.is_eos_ignored:
            return self._matcher.flush(), "stop", None
        if may_stop and token in self.sampling.stop_token_ids:
            return self._matcher.flush(), "stop", token
        text = self._decoder.feed((token,))
        stop: str | None = None
        if may_stop:
            text, stop = self._matcher.feed(text)
        if stop is not None:
            return text, "stop", stop
        if self.output_tokens >= self.max_tokens:
            return text + self._matcher.flush(), "length", None
        return text, None, None

    def end_early(self) -> Produced:
        """Close a sequence that the pipeline ended before any limit that we watch.

        A JSON document that is complete ends so when the grammar allows nothing more.
        """
        return self._produced(self._matcher.flush(), "stop", None)

    def _produced(
        self, text: str, finish_reason: str | None, stop_reason: str | int | None
    ) -> Produced:
        return Produced(self.sequence_id, text, self.output_tokens, finish_reason, stop_reason)
