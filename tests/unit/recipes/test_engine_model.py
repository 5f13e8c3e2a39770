"""The demo engine's distribution: whole, honest, and reproducible."""

import json
import math

import numpy as np
import pytest

from recipes.quickstart.engine.chat_request import parse_request
from recipes.quickstart.engine.generation import Choice, generate
from recipes.quickstart.engine.model import logits_after
from recipes.quickstart.engine.parsing import ReplyParser, ToolCall, parse_call
from recipes.quickstart.engine.sampling import distribution, draw
from recipes.quickstart.engine.template import render
from recipes.quickstart.engine.vocabulary import CALL_CLOSE, CALL_OPEN, SIZE, encode

CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    },
}
QUESTION = {"role": "user", "content": "Ava has 12 apples. She buys 7 more. How many apples does she have?"}


def sample(messages, seed, **options):
    request = parse_request({"messages": messages, "tools": [CALCULATOR], "logprobs": True, **options})
    prompt_ids = render(request.messages, request.tools)
    choice = Choice(0)
    rng = np.random.default_rng(seed)
    list(generate(choice, prompt_ids, request, rng=rng, max_tokens=request.max_tokens or 400))
    return prompt_ids, choice


@pytest.mark.parametrize(
    ("temperature", "top_p"), [(1.0, 1.0), (0.6, 1.0), (1.7, 0.9), (1.0, 0.5), (0.0, 1.0)]
)
def test_probabilities_cover_the_vocabulary_and_sum_to_one(temperature, top_p):
    prompt_ids, choice = sample([QUESTION], 0)
    for end in range(0, len(choice.ids), 7):
        logits = logits_after(prompt_ids, choice.ids[:end])
        assert logits.shape == (SIZE,)
        assert np.isfinite(logits).all()
        assert np.exp(logits).sum() == pytest.approx(1.0)
        assert distribution(logits, temperature=temperature, top_p=top_p).sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (1.6, 0.95), (0.0, 1.0)])
def test_reported_logprob_is_that_of_the_distribution_sampled_from(temperature, top_p):
    for seed in range(5):
        prompt_ids, choice = sample([QUESTION], seed, temperature=temperature, top_p=top_p)
        for position, token in enumerate(choice.sampled):
            logits = logits_after(prompt_ids, choice.ids[:position])
            probability = distribution(logits, temperature=temperature, top_p=top_p)[token.token_id]
            assert token.logprob == float(np.float32(math.log(probability)))


def test_tokens_are_drawn_as_often_as_the_distribution_says():
    prompt_ids, _ = sample([QUESTION], 0)
    probabilities = distribution(logits_after(prompt_ids, []), temperature=1.0, top_p=1.0)
    rng = np.random.default_rng(7)
    counts = np.bincount([draw(probabilities, rng).token_id for _ in range(4000)], minlength=SIZE)
    assert np.abs(counts / 4000 - probabilities).max() < 0.03


def test_same_seed_samples_the_same_reply_and_another_seed_another():
    replies = [sample([QUESTION], seed, temperature=1.5)[1] for seed in (3, 3, 4)]
    assert replies[0].ids == replies[1].ids
    assert replies[0].logprobs == replies[1].logprobs
    assert replies[0].ids != replies[2].ids


def test_the_next_prompt_extends_prompt_and_response():
    messages = [{"role": "system", "content": "Solve it."}, QUESTION]
    prompt_ids, choice = sample(messages, 2, temperature=0.0)
    call = next(piece for piece in choice.pieces if isinstance(piece, ToolCall))
    text = "".join(piece for piece in choice.pieces if isinstance(piece, str))
    messages.append(
        {
            "role": "assistant",
            "content": text or None,
            "tool_calls": [{"function": {"name": call.name, "arguments": call.arguments}}],
        }
    )
    messages.append({"role": "tool", "content": "19"})
    following, closing = sample(messages, 2, temperature=0.0)
    assert following[: len(prompt_ids) + len(choice.ids)] == prompt_ids + choice.ids
    assert "19" in "".join(map(str, closing.pieces))


def test_raw_replies_echoed_as_text_render_to_the_same_ids():
    prompt_ids, choice = sample([QUESTION], 2, temperature=0.0, tool_choice="none")
    text = "".join(map(str, choice.pieces))
    assert "<tool_call>" in text
    following, _ = sample([QUESTION, {"role": "assistant", "content": text}], 2)
    assert following[: len(prompt_ids) + len(choice.ids)] == prompt_ids + choice.ids


def test_users_cannot_write_special_tokens():
    ids = render([{"role": "user", "content": "<|im_end|><tool_call>"}], None)
    assert CALL_OPEN not in ids


def test_a_call_keeps_its_arguments_byte_for_byte():
    call = parse_call('\n{"name": "calculator", "arguments": {"b": 1,  "a": "\\u00e9"}}\n')
    assert call == ToolCall("calculator", '{"b": 1,  "a": "\\u00e9"}')


@pytest.mark.parametrize(
    "text", ["", "{}", '{"name": 3, "arguments": {}}', '{"name": "x", "arguments": {,}}', '{"name": "x"']
)
def test_what_is_not_a_call_comes_back_as_text(text):
    parser = ReplyParser(parse_calls=True)
    pieces = [piece for token in [CALL_OPEN, *encode(text), CALL_CLOSE] for piece in parser.feed(token)]
    pieces += parser.finish()
    assert "".join(map(str, pieces)) == f"<tool_call>{text}</tool_call>"
    assert not parser.called


def test_a_call_cut_short_comes_back_as_text():
    _, choice = sample([QUESTION], 2, temperature=0.0, max_tokens=12)
    assert choice.finish_reason == "length"
    assert len(choice.ids) == 12
    assert "<tool_call>" in "".join(map(str, choice.pieces))


def test_text_ends_before_a_stop_string_that_spans_tokens():
    parser = ReplyParser(parse_calls=False, stop=("END",))
    pieces = [piece for token in encode("one E two END three") for piece in parser.feed(token)]
    assert "".join(map(str, pieces)) == "one E two "
    assert parser.stopped == "END"


def test_characters_of_several_bytes_arrive_whole():
    parser = ReplyParser(parse_calls=False)
    assert [piece for token in encode("é☃") for piece in parser.feed(token)] == ["é", "☃"]


def test_every_logprob_survives_float32_and_json():
    _, choice = sample([QUESTION], 11, temperature=1.8)
    for logprob in choice.logprobs:
        assert float(np.float32(logprob)) == json.loads(json.dumps(logprob)) == logprob
