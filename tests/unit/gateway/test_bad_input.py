"""Bad input: each has its status, its code, OpenAI's shape, and a message that says what to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agentworld.contract.errors import Unavailable
from agentworld.contract.events import Place
from agentworld.platform.log import OutRecord
from gateway.directory import DirectoryAway, Entry, LocalDirectory
from tests.unit.gateway.harness import HI, RunningGateway, running_gateway
from tests.unit.gateway.scripted_engine import ScriptedEngine, running_engine

CHAT = "/t1/p1/v1/chat/completions"
STEP = {"trajectory_uid": "t9", "prompt_uid": "p9", "prompt_ids": [1], "response_ids": [2, 3]}


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with running_engine() as engine:
        yield engine


@pytest.fixture
async def gateway(engine: ScriptedEngine) -> AsyncIterator[RunningGateway]:
    async with running_gateway(engine.url, max_body_bytes=10_000) as gateway:
        await gateway.register()
        yield gateway


def assert_error(answer: tuple[int, Any], status: int, code: str) -> str:
    assert answer[0] == status, answer
    error = answer[1]["error"]
    assert set(error) == {"message", "type", "code", "param"}
    assert error["code"] == code
    return str(error["message"])


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{not json", "invalid_json"),
        (b"", "invalid_json"),
        (b"[]", "invalid_json"),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', "invalid_json"),
        (b"{}", "invalid_request"),
        (b'{"messages": "hi"}', "invalid_request"),
        (b'{"messages": []}', "invalid_request"),
        (b'{"messages": [1]}', "invalid_request"),
        (b'{"messages": [{}], "n": 0}', "invalid_request"),
        (b'{"messages": [{}], "stream": "yes"}', "invalid_request"),
        (b'{"messages": [{}], "model": 5}', "invalid_request"),
    ],
)
async def test_a_body_that_is_no_chat_request_is_400(
    gateway: RunningGateway, engine: ScriptedEngine, body: bytes, code: str
) -> None:
    answer = await gateway.post(CHAT, data=body)
    assert_error(answer, 400, code)
    assert not engine.requests
    assert not gateway.steps


ROUTES = (
    *("/t1/p1/v1/chat/completions", "/t1/p1/v1/responses", "/t1/p1/v1/messages", "/t1/p1/v1/completions"),
    *("/t1/p1/v1/messages/count_tokens", "/t1/p1/v1/register_trajectory", "/t1/p1/v1/complete_trajectory"),
    *("/init_trajectory", "/submit_steps", "/generate"),
)


@pytest.mark.parametrize("levels", [700, 900, 960, 980, 995, 1_005, 4_900])
async def test_however_deeply_a_body_is_nested_it_is_taken_whole_or_refused(
    gateway: RunningGateway, levels: int
) -> None:
    nested = b"[" * levels + b"]" * levels
    for path in ROUTES:
        whole = (
            b'{"messages": [{"role": "user", "content": "hi"}], "input": "hi", "prompt": "hi", "model": "m", '
        )
        body = whole + b'"max_tokens": 5, "metadata": {"deep": ' + nested + b"}}"
        async with gateway.http.post(gateway.url + path, data=body) as answer:
            told = await answer.text()
            assert answer.status < 500 or "nested" in told, (path, answer.status, told)
    assert [step.status for step in gateway.steps if step.status != "ok"] == []


async def test_an_unknown_trajectory_is_404_and_says_to_register(gateway: RunningGateway) -> None:
    message = assert_error(await gateway.chat(at="/other/p1"), 404, "unknown_trajectory")
    assert "register_trajectory" in message


async def test_another_prompt_is_409(gateway: RunningGateway) -> None:
    assert_error(await gateway.chat(at="/t1/p2"), 409, "prompt_mismatch")
    answer = await gateway.post("/t1/p2/v1/register_trajectory", {})
    assert_error(answer, 409, "prompt_mismatch")


async def test_a_completed_trajectory_takes_no_calls(gateway: RunningGateway) -> None:
    assert (await gateway.post("/t1/p1/v1/complete_trajectory"))[0] == 200
    assert_error(await gateway.chat(), 409, "trajectory_completed")
    step = {**STEP, "trajectory_uid": "t1", "prompt_uid": "p1"}
    assert_error(await gateway.post("/submit_steps", {"steps": [step]}), 409, "trajectory_completed")


async def test_mismatched_ids_and_logprobs_are_422_and_nothing_is_taken(gateway: RunningGateway) -> None:
    good = {**STEP, "rollout_log_probs": [-0.1, -0.2]}
    bad = {**STEP, "step_index": 1, "rollout_log_probs": [-0.1]}
    answer = await gateway.post("/submit_steps", {"steps": [good, bad]})
    message = assert_error(answer, 422, "length_mismatch")
    assert "steps[1]" in message
    assert not gateway.steps


async def test_an_oversized_body_is_413(gateway: RunningGateway) -> None:
    answer = await gateway.post(CHAT, data=b"x" * 10_001)
    assert_error(answer, 413, "body_too_large")
    answer = await gateway.post("/submit_steps", data=b"x" * 10_001)
    assert_error(answer, 413, "body_too_large")


async def test_an_oversized_body_without_a_length_is_413(gateway: RunningGateway) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 1000

    assert_error(await gateway.post(CHAT, data=endless()), 413, "body_too_large")


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, zstd", "x"])
async def test_another_compression_is_415_and_says_which_are_taken(
    gateway: RunningGateway, encoding: str
) -> None:
    headers = {"Content-Encoding": encoding}
    async with gateway.http.post(gateway.url + CHAT, data=b"x", headers=headers) as response:
        message = assert_error((response.status, await response.json()), 415, "unsupported_encoding")
        assert response.headers["Accept-Encoding"] == "identity, gzip, zstd"
    assert "zstd" in message


@pytest.mark.parametrize(
    ("method", "path"), [("GET", CHAT), ("DELETE", CHAT), ("GET", "/init_trajectory"), ("PUT", "/health")]
)
async def test_an_unsupported_method_is_405(gateway: RunningGateway, method: str, path: str) -> None:
    async with gateway.http.request(method, gateway.url + path) as response:
        answer = response.status, await response.json()
        assert response.headers["Allow"]
    assert_error(answer, 405, "method_not_allowed")


@pytest.mark.parametrize("path", ["/nothing", "/t1/p1/v1/embeddings", "/t1/p1/v1/", "/v1/embeddings"])
async def test_an_unknown_path_is_404(gateway: RunningGateway, path: str) -> None:
    assert_error(await gateway.post(path, HI), 404, "unknown_path")


@pytest.mark.parametrize("at", ["/-t/p1", "/t8/%20", "/t8/" + "p" * 129, "/t'1/p1"])
async def test_an_invalid_name_is_422(gateway: RunningGateway, at: str) -> None:
    assert_error(await gateway.chat(at=at), 422, "invalid_name")
    assert_error(await gateway.post(f"{at}/v1/register_trajectory", {}), 422, "invalid_name")
    assert_error(await gateway.post(f"{at}/v1/reward", {"value": 1}), 422, "invalid_name")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"channel": "no spaces"}, "invalid_name"),
        ({"metadata": {"n_rollouts": 0}}, "invalid_metadata"),
        ({"metadata": {"n_rollouts": "4"}}, "invalid_metadata"),
        ({"metadata": {"round": -1}}, "invalid_metadata"),
        ({"metadata": {"run_id": 7}}, "invalid_metadata"),
        ({"metadata": {"run_id": "/"}}, "invalid_name"),
        ({"metadata": []}, "invalid_request"),
        ({"channel": 5}, "invalid_request"),
    ],
)
async def test_an_invalid_registration_is_422(gateway: RunningGateway, body: Any, code: str) -> None:
    assert_error(await gateway.post("/t2/p1/v1/register_trajectory", body), 422, code)
    assert len(gateway.registrations) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/t1/p1/v1/reward", {}),
        ("/t1/p1/v1/reward", {"value": "much"}),
        ("/t1/p1/v1/reward", {"value": 1, "version": 0}),
        ("/t1/p1/v1/complete_trajectory", {"outcome": "fine"}),
        ("/submit_steps", {"steps": [{"prompt_ids": [1]}]}),
        ("/submit_steps", {"steps": [{**STEP, "response_ids": [-1]}]}),
    ],
)
async def test_an_invalid_control_body_is_422_and_names_the_field(
    gateway: RunningGateway, path: str, body: Any
) -> None:
    status, reply = await gateway.post(path, body)
    assert status == 422
    assert reply["error"]["param"]


async def test_a_control_body_that_is_not_json_is_400(gateway: RunningGateway) -> None:
    answer = await gateway.post("/t1/p1/v1/reward", data=b"{")
    assert_error(answer, 400, "invalid_json")
    answer = await gateway.post("/t1/p1/v1/reward", data=b'{"value": NaN}')
    assert answer[0] in {400, 422}


class FullPublisher:
    """Broker away, spool full."""

    async def publish(self, record: OutRecord) -> Place | None:
        raise Unavailable("the broker is away and the spool is full: bring the broker back", retry_after_s=5)

    async def close(self) -> None: ...


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_cannot_be_captured_is_never_answered(engine: ScriptedEngine, stream: bool) -> None:
    directory = LocalDirectory()
    directory.put(Entry("t1", "p1", "default", "train", "default"))
    async with running_gateway(engine.url, publisher=FullPublisher(), directory=directory) as gateway:
        url = f"{gateway.url}{CHAT}"
        async with gateway.http.post(url, json={**HI, "stream": stream}) as response:
            text = await response.text()
            if stream:
                assert "[DONE]" not in text
                assert '"finish_reason":"stop"' not in text
                assert text.rstrip().rsplit("\n", 1)[-1].startswith('data: {"error"')
            else:
                assert response.status == 503
                assert response.headers["Retry-After"] == "5"
            assert "spool is full" in text
        answer = await gateway.post("/t2/p1/v1/register_trajectory", {})
        assert_error(answer, 503, "unavailable")
        assert directory.get("t2") is None


def no_room() -> None:
    raise Unavailable("the broker is away and the spool is full: bring the broker back", retry_after_s=5)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("at", ["/t1/p1", ""])
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", HI),
        ("completions", {"prompt": "hi"}),
        ("responses", {"input": "hi"}),
        ("messages", {**HI, "max_tokens": 9}),
    ],
)
async def test_while_nothing_can_be_recorded_calls_are_refused_before_the_engine_is_asked(
    engine: ScriptedEngine, path: str, fields: dict[str, Any], at: str, stream: bool
) -> None:
    body = {**fields, "model": "tiny", "stream": stream}
    async with running_gateway(engine.url, check_room=no_room) as gateway:
        await gateway.register()
        registered = len(gateway.events)
        async with gateway.http.post(f"{gateway.url}{at}/v1/{path}", json=body) as response:
            assert response.status == 503
            assert response.headers["Retry-After"] == "5"
            assert "spool is full" in await response.text()
        assert len(gateway.events) == registered
    assert engine.requests == []


class AwayDirectory(LocalDirectory):
    """Nobody can say."""

    async def find(self, trajectory_id: str) -> Entry | None:
        raise DirectoryAway("the broker is away")


async def test_an_unknown_trajectory_is_taken_on_trust_while_the_broker_is_away(
    engine: ScriptedEngine,
) -> None:
    async with running_gateway(engine.url, directory=AwayDirectory()) as gateway:
        assert (await gateway.chat())[0] == 200
        assert (await gateway.post("/t1/p1/v1/complete_trajectory"))[0] == 200
        await gateway.register("t2")
        assert len(gateway.steps) == 1
