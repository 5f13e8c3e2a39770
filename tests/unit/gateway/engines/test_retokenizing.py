"""Ids that the gateway read from text itself: marked, and only where they can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import models, pre_tokenizers

from agentworld.contract.errors import ContractViolation
from gateway.engine import Answer, EngineObject
from gateway.engines.tokenizers import TokenizerFile, load_tokenizer, retokenize
from tests.unit.gateway.engines.reading_replies import call_of

WORDS = ["hi", "yes", "no", "user", "assistant", ":", ";", "{", "}", "name", "look"]
TEMPLATE = (
    "{% for m in messages %}{{ m.role }} : {{ m.content or '' }}"
    "{% for t in m.tool_calls or [] %} {{ t.function | tojson }}{% endfor %} ;\n{% endfor %}"
    "{% if add_generation_prompt %}assistant : {% endif %}"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    vocabulary = {"?": 0} | {word: i for i, word in enumerate(WORDS, 1)}
    tokenizer = HfTokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


@pytest.fixture
def template(tmp_path: Path) -> Path:
    (tmp_path / "template.jinja").write_text(TEMPLATE)
    return tmp_path / "template.jinja"


def answer_of(message: str, **choice: str) -> Answer:
    answer = Answer()
    extra = "".join(f', "{name}": {value}' for name, value in choice.items())
    data = f'{{"choices": [{{"index": 0, "finish_reason": "stop", "message": {message}{extra}}}]}}'
    answer.add(EngineObject.parse(data.encode()), "message")
    return answer


def test_a_plain_turn_gets_its_texts_ids_and_is_marked(file: Path) -> None:
    answer = answer_of('{"content": "yes no"}')
    retokenize(call_of(), answer, load_tokenizer(str(file)))
    assert answer.choices[0].ids == [2, 3]
    assert answer.prompt_ids is None
    assert answer.retokenized


def test_without_a_template_a_tool_call_has_no_ids(file: Path) -> None:
    answer = answer_of('{"content": null, "tool_calls": [{"function": {"name": "look"}}]}')
    retokenize(call_of(), answer, load_tokenizer(str(file)))
    assert answer.choices[0].ids is None


def test_a_template_gives_prompts_and_tool_calls_ids(file: Path, template: Path) -> None:
    tokenizer = load_tokenizer(str(file), template)
    answer = answer_of('{"content": null, "tool_calls": [{"function": {"name": "look"}}]}')
    retokenize(call_of(), answer, tokenizer)
    assert answer.prompt_ids == [4, 6, 1, 7, 5, 6]
    assert answer.choices[0].ids is not None
    assert 11 in answer.choices[0].ids


def test_the_prompt_and_the_turn_make_the_next_prompts_beginning(file: Path, template: Path) -> None:
    tokenizer = TokenizerFile(file, template)
    history: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    turn = {"role": "assistant", "content": "yes"}
    prompt, sampled = tokenizer.prompt_ids(history, None), tokenizer.response_ids(history, None, turn)
    assert prompt is not None
    assert sampled is not None
    later = tokenizer.prompt_ids([*history, turn, {"role": "user", "content": "no"}], None)
    assert later is not None
    assert later[: len(prompt) + len(sampled)] == prompt + sampled


def test_ids_of_the_engine_are_never_replaced(file: Path) -> None:
    answer = answer_of('{"content": "yes"}', token_ids="[99]")
    retokenize(call_of(), answer, load_tokenizer(str(file)))
    assert answer.choices[0].ids == [99]
    assert not answer.retokenized


class NoTokenizer:
    def prompt_ids(self, messages: list[dict[str, Any]], tools: list[Any] | None) -> list[int]:
        return [len(messages)]

    def response_ids(self, messages: list[Any], tools: list[Any] | None, turn: dict[str, Any]) -> list[int]:
        return [len(turn["content"])]


def test_a_tokenizer_can_be_any_factory() -> None:
    answer = answer_of('{"content": "yes"}')
    retokenize(call_of(), answer, load_tokenizer(f"{__name__}:NoTokenizer"))
    assert (answer.prompt_ids, answer.choices[0].ids) == ([1], [3])


@pytest.mark.parametrize("where", ["nowhere.json", "no_such_module:f", "json:no_such_name", "", "plain"])
def test_a_tokenizer_that_is_not_there_stops_the_start_with_a_clear_error(where: str) -> None:
    with pytest.raises(ContractViolation, match="tokenizer"):
        load_tokenizer(where)


def test_a_broken_template_stops_the_start_with_a_clear_error(file: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jinja").write_text("{% for %}")
    with pytest.raises(ContractViolation, match="chat template"):
        load_tokenizer(str(file), tmp_path / "bad.jinja")
