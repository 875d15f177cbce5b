"""Before a sweep: whether the target can be measured, and what its tokenizer makes of our words."""

from __future__ import annotations

from collections.abc import Callable

from backends.sweep.engine_target import Target
from backends.sweep.errors import SweepError
from backends.sweep.outcome import Failure, Outcome
from backends.sweep.prompts import Calibration, PromptWriter, fit_calibration
from backends.sweep.request_body import AskedModel

_SHORT, _LONG, _MIDDLE = 16, 256, 64  # words
_OUTPUT_TOKENS = 4
_UNCALIBRATED = Calibration(1.0, 0.0)


async def calibrate(
    target: Target, endpoint: AskedModel, *, run: int, clock: Callable[[], float]
) -> Calibration:
    """Ask a few short requests, one after the other.

    Raises :class:`SweepError` with one sentence: unreachable, not allowed, unknown model, no counts.
    """
    writer = PromptWriter(_UNCALIBRATED, seed=0, run=run)

    async def ask(number: int, words: int, *, ignores_eos: bool) -> Outcome:
        prompt = writer.write_words(number, words)
        body = endpoint.write_body(prompt, _OUTPUT_TOKENS, ignores_eos=ignores_eos)
        return await target.ask(body, clock())

    ignores_eos = True  # vLLM's word: answers are as long as they are meant to be
    short = await ask(1, _SHORT, ignores_eos=True)
    if short.failure in {Failure.REJECTED, Failure.FAILED}:
        ignores_eos = False
        short = await ask(2, _SHORT, ignores_eos=False)
    check_answer(short, endpoint.model)
    words = _LONG
    long = await ask(3, words, ignores_eos=ignores_eos)
    if long.failure is Failure.REJECTED:  # a short context
        words = _MIDDLE
        long = await ask(4, words, ignores_eos=ignores_eos)
    check_answer(long, endpoint.model)
    return fit_calibration(
        (_SHORT, short.input_tokens), (words, long.input_tokens), ignores_eos=ignores_eos
    )


def check_answer(outcome: Outcome, model: str) -> None:
    """Do nothing if the request was answered and counted. Raises :class:`SweepError`."""
    failure, detail = outcome.failure, outcome.detail.rstrip(".")
    if failure is None:
        return
    sentences = {
        Failure.UNREACHABLE: f"nothing answers there: {detail}",
        Failure.UNAUTHORIZED: f"the key is not accepted ({detail}); give one with --key-env",
        Failure.UNKNOWN_MODEL: f"the model {model!r} is not served there, or the URL has another path "
        f"({detail})",
        Failure.NO_USAGE: "the streams have no token counts, although stream_options.include_usage "
        "asks for them: nothing can be measured per token",
        Failure.REFUSED: f"the engine refuses the first request ({detail})",
        Failure.TIMEOUT: f"the first request is not answered: {detail}",
    }
    raise SweepError(sentences.get(failure, f"the first request fails ({failure}: {detail})"))
