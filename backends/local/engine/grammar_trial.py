"""Compiles grammars beside the pipeline, so that one that cannot be compiled harms nobody.

OpenVINO compiles a request's grammar in the middle of the pipeline's step: a grammar that its compiler
refuses loses the step for everyone, and a large one holds everyone up for seconds. There is no call
that only compiles. But a second pipeline with the same tokenizer shares the compiler and its cache, and
its model may be any. So each new schema is first tried on a model of no weights, in a thread: that
pipeline survives a refusal, does not hold the interpreter lock while it compiles, and leaves the result
in the cache, where the real pipeline finds it (measured: 3 s for a string of at most 100 characters the
first time, 0.05 s the second).
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

_PRIORITY = 10  # below the pipeline's threads, which everyone waits for
_MAX_PROBLEM = 300


class GrammarTrial:
    """Tries schemas one after the other."""

    def __init__(self, genai: Any, tokenizer: Any, vocabulary_size: int, eos_token_id: int) -> None:
        """Make the second pipeline; takes 0.3 s. Raises ``RuntimeError`` when OpenVINO cannot."""
        import numpy as np  # noqa: PLC0415 - comes with OpenVINO
        import openvino  # noqa: PLC0415

        weights = np.array([vocabulary_size], dtype="<i8").view(np.uint8)
        self._genai = genai
        self._eos_token_id = eos_token_id
        self._pipe = genai.LLMPipeline(
            _MODEL,
            openvino.Tensor(np.concatenate([weights, np.zeros(4, np.uint8)])),
            tokenizer,
            "CPU",
            self._config(),
            ATTENTION_BACKEND="SDPA",  # the plain one: the model has no attention to be paged
        )
        one = openvino.Tensor(np.ones((1, 1), dtype=np.int64))
        self._prompt = genai.TokenizedInputs(one, one)
        self._thread = ThreadPoolExecutor(1, initializer=_lower_priority)

    def start(self, json_schema: str) -> Future[str | None]:
        """Have a schema tried, after those before it; the result is what is wrong with it."""
        return self._thread.submit(self.find_problem, json_schema)

    def find_problem(self, json_schema: str) -> str | None:
        """Compile a schema's grammar; returns the compiler's complaint, None if it has none."""
        config = self._config()
        structured = self._genai.StructuredOutputConfig()
        structured.json_schema = json_schema
        config.structured_output_config = structured
        try:
            self._pipe.generate(self._prompt, config)
        except Exception as error:  # noqa: BLE001 - C++ errors of several kinds, OverflowError among them
            return _complaint(str(error))
        return None

    def _config(self) -> Any:
        config = self._genai.GenerationConfig()
        config.max_new_tokens = 1
        config.eos_token_id = self._eos_token_id
        config.do_sample = False
        return config


def _lower_priority() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PRIORITY)


def _complaint(error: str) -> str:
    """Return the compiler's sentence without the place in its source that stands before it."""
    line = error.strip().splitlines()[-1] if error.strip() else "the grammar cannot be compiled"
    _, separator, sentence = line.partition(".cc:")
    sentence = sentence.partition(": ")[2] if separator else line
    return (sentence or line)[:_MAX_PROBLEM]


# A network whose output has a model's shape, [batch, length, vocabulary], and needs no weights: the
# one-hot encoding of the token ids. Its weights are two constants, the vocabulary's size and a zero.
_MODEL = """<?xml version="1.0"?>
<net name="weightless" version="11">
<layers>
<layer id="0" name="ids" type="Parameter" version="opset1">
  <data shape="?,?" element_type="i64"/>
  <output><port id="0" precision="I64" names="input_ids"/></output>
</layer>
<layer id="1" name="mask" type="Parameter" version="opset1">
  <data shape="?,?" element_type="i64"/>
  <output><port id="0" precision="I64" names="attention_mask"/></output>
</layer>
<layer id="2" name="beams" type="Parameter" version="opset1">
  <data shape="?" element_type="i32"/>
  <output><port id="0" precision="I32" names="beam_idx"/></output>
</layer>
<layer id="3" name="vocabulary_size" type="Const" version="opset1">
  <data element_type="i64" shape="" offset="0" size="8"/>
  <output><port id="0" precision="I64"/></output>
</layer>
<layer id="4" name="zero" type="Const" version="opset1">
  <data element_type="f32" shape="" offset="8" size="4"/>
  <output><port id="0" precision="FP32"/></output>
</layer>
<layer id="5" name="one_hot" type="OneHot" version="opset1">
  <data axis="-1"/>
  <input>
    <port id="0" precision="I64"/><port id="1" precision="I64"/>
    <port id="2" precision="FP32"/><port id="3" precision="FP32"/>
  </input>
  <output><port id="4" precision="FP32" names="logits"/></output>
</layer>
<layer id="6" name="output" type="Result" version="opset1">
  <input><port id="0" precision="FP32"/></input>
</layer>
</layers>
<edges>
<edge from-layer="0" from-port="0" to-layer="5" to-port="0"/>
<edge from-layer="3" from-port="0" to-layer="5" to-port="1"/>
<edge from-layer="4" from-port="0" to-layer="5" to-port="2"/>
<edge from-layer="4" from-port="0" to-layer="5" to-port="3"/>
<edge from-layer="5" from-port="4" to-layer="6" to-port="0"/>
</edges>
</net>
"""
