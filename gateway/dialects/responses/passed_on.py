"""Fields that mean the same to an engine's chat completions, and so travel unchanged."""

from __future__ import annotations

_OPENAI = {
    "frequency_penalty",
    "logit_bias",
    "max_completion_tokens",
    "max_tokens",
    "presence_penalty",
    "response_format",
    "seed",
    "stop",
    "temperature",
    "top_logprobs",
    "top_p",
}
_VLLM = {
    "add_generation_prompt",
    "add_special_tokens",
    "allowed_token_ids",
    "bad_words",
    "cache_salt",
    "chat_template",
    "chat_template_kwargs",
    "continue_final_message",
    "documents",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "ignore_eos",
    "include_stop_str_in_output",
    "kv_transfer_params",
    "length_penalty",
    "min_p",
    "min_tokens",
    "mm_processor_kwargs",
    "priority",
    "repetition_penalty",
    "return_weight_versions",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop_token_ids",
    "structured_outputs",
    "top_k",
    "truncate_prompt_tokens",
    "vllm_xargs",
}
_SGLANG = {"custom_params", "ebnf", "lora_path", "no_stop_trim", "regex", "session_params", "stop_regex"}

PASSED_ON = frozenset(_OPENAI | _VLLM | _SGLANG)
"""By name. Others are the Responses protocol's own, or unknown, and stay in the captured step only."""
