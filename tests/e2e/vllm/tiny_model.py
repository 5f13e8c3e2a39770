"""A Qwen3 of a few thousand weights, as files that vLLM can serve with `--load-format dummy`. No download."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
_CORPUS = [
    "Add one and two and say what comes of it. Größe, naïve, 数字, \U0001f600.",
    '{"name": "add", "arguments": {"a": 1, "b": 2}}',
    "system user assistant tool The quick brown fox jumps over the lazy dog.",
]
_TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}
<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
_HEAD_DIM = 32


def write_tiny_model(folder: Path) -> Path:
    """Configuration, tokenizer and chat template; the weights are made up by vLLM as it starts."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        _CORPUS, trainers.BpeTrainer(vocab_size=512, special_tokens=_SPECIAL, initial_alphabet=alphabet)
    )
    tokenizer.add_tokens(_TAGS)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(folder / "tokenizer_config.json", _tokenizer_config())
    end = tokenizer.token_to_id("<|im_end|>")
    _write(folder / "config.json", _model_config(tokenizer.get_vocab_size(), end))
    _write(folder / "generation_config.json", {"eos_token_id": end})
    return folder


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "chat_template": _TEMPLATE,
    }


def _model_config(vocabulary: int, end: int) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 2 * _HEAD_DIM,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": _HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "vocab_size": vocabulary,
        "eos_token_id": end,
        "torch_dtype": "float32",
    }


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
