"""The SDK over a socket: what it sends, when it repeats, and how it says what is wrong."""

import http.server
import json
import threading

import pytest

from agentworld.client import AgentWorld, AsyncAgentWorld
from agentworld.contract.errors import InvalidInput, Unavailable


class Gateway(http.server.ThreadingHTTPServer):
    """Answers as the gateway's control routes do, and notes what it was asked."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Routes)
        self.asked = []
        self.refusals = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Routes(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.server.asked.append((self.path, json.loads(body) if body else None))
        if self.server.refusals:
            status, answer = self.server.refusals.pop(0)
            if status is None:
                self.close_connection = True
                return
        elif self.path == "/init_trajectory":
            status, answer = 200, {"trajectory_uid": "t1", "base_url": f"{self.server.url}/t1/1/v1"}
        else:
            status, answer = 200, {"status": "ok"}
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def gateway():
    with Gateway() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_block_registers_and_completes(gateway):
    client = AgentWorld(gateway.url + "/v1/")
    with client.trajectory(
        prompt_id="task-7", run_id="r", rollouts=4, rollout_index=2, metadata={"data_source": "d"}
    ) as t:
        assert t.trajectory_id == "t1"
        assert t.base_url == f"{gateway.url}/t1/task-7/v1"
    metadata = {"data_source": "d", "run_id": "r", "n_rollouts": 4, "rollout_index": 2, "round": 0}
    assert gateway.asked == [
        ("/init_trajectory", None),
        ("/t1/task-7/v1/register_trajectory", {"channel": "train", "metadata": metadata}),
        ("/t1/task-7/v1/complete_trajectory", {"channel": "train", "outcome": "succeeded"}),
    ]


def test_an_exception_fails_the_trajectory_and_is_raised_again(gateway):
    with (
        pytest.raises(RuntimeError, match="boom"),
        AgentWorld(gateway.url).trajectory(prompt_id="p"),
    ):
        raise RuntimeError("boom")
    body = {"channel": "train", "outcome": "failed", "reason": "RuntimeError: boom"}
    assert gateway.asked[-1] == ("/t1/p/v1/complete_trajectory", body)


def test_an_explicit_completion_is_the_only_one(gateway):
    with AgentWorld(gateway.url).trajectory(prompt_id="p", channel="val") as t:
        t.complete("failed", reward=0, reason="wrong")
    completions = [body for path, body in gateway.asked if path.endswith("complete_trajectory")]
    assert completions == [{"channel": "val", "outcome": "failed", "reward": 0.0, "reason": "wrong"}]


def test_rewards_name_their_step(gateway):
    with AgentWorld(gateway.url).trajectory(prompt_id="p") as t:
        t.reward(1, name="format", step_id="s")
    assert ("/t1/p/v1/reward", {"value": 1.0, "name": "format", "step_id": "s"}) in gateway.asked


def test_a_gateway_that_is_away_is_asked_again(gateway):
    gateway.refusals += [(503, {"error": {"message": "spool full"}}), (None, None), (502, b"")]
    with AgentWorld(gateway.url).trajectory(prompt_id="p"):
        pass
    assert [path for path, _ in gateway.asked].count("/init_trajectory") == 4


def test_patience_ends_with_the_gateways_own_words(gateway):
    gateway.refusals += [(503, {"error": {"code": "spool_full", "message": "the spool is full"}})] * 50
    with (
        pytest.raises(Unavailable, match="the spool is full"),
        AgentWorld(gateway.url, patience_s=0.3).trajectory(prompt_id="p"),
    ):
        pass


def test_nobody_listening_is_said_with_the_address():
    client = AgentWorld("http://127.0.0.1:9", patience_s=0)
    with pytest.raises(Unavailable, match=r"no gateway answers at http://127\.0\.0\.1:9"):
        client.trajectory(prompt_id="p").__enter__()


def test_a_refusal_carries_code_status_and_message_and_is_not_repeated(gateway):
    gateway.refusals.append((409, {"error": {"code": "trajectory_completed", "message": "it is over"}}))
    with pytest.raises(InvalidInput, match="it is over") as caught:
        AgentWorld(gateway.url).trajectory(prompt_id="p").__enter__()
    assert (caught.value.code, caught.value.status) == ("trajectory_completed", 409)
    assert len(gateway.asked) == 1


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b"{}"])
def test_something_else_than_a_gateway_is_recognised(gateway, answer):
    gateway.refusals.append((200, answer))
    with pytest.raises(InvalidInput) as caught:
        AgentWorld(gateway.url).trajectory(prompt_id="p").__enter__()
    assert caught.value.code == "not_a_gateway"


def test_a_failure_that_cannot_be_reported_does_not_hide_the_first(gateway):
    def rollout():
        with AgentWorld(gateway.url, patience_s=0).trajectory(prompt_id="p"):
            gateway.refusals.append((503, {}))
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom") as caught:
        rollout()
    assert "could not be completed" in caught.value.__notes__[0]


@pytest.mark.parametrize("name", ["", "a/b", "a b", "-x", "x" * 129])
def test_names_that_cannot_stand_in_a_path_are_refused_before_any_call(gateway, name):
    with pytest.raises(InvalidInput, match="not a valid name"):
        AgentWorld(gateway.url).trajectory(prompt_id=name)
    assert gateway.asked == []


def test_an_address_that_is_none_is_refused():
    with pytest.raises(InvalidInput, match="not an HTTP address"):
        AgentWorld("localhost:8700")


async def test_asyncio_has_the_same(gateway):
    async with AsyncAgentWorld(gateway.url).trajectory(prompt_id="p", rollouts=2) as t:
        assert t.base_url == f"{gateway.url}/t1/p/v1"
        await t.reward(0.5)
        await t.complete("abandoned", reason="no more")
    with pytest.raises(RuntimeError, match="boom"):
        async with AsyncAgentWorld(gateway.url).trajectory(prompt_id="p"):
            raise RuntimeError("boom")
    completions = [body["outcome"] for path, body in gateway.asked if path.endswith("complete_trajectory")]
    assert completions == ["abandoned", "failed"]
