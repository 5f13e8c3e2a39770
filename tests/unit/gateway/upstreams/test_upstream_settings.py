"""The upstreams file, and the one engine from the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentworld.contract.errors import ContractViolation
from gateway import upstreams
from gateway.settings import GatewaySettings
from gateway.upstream import Upstream
from gateway.upstream_settings import EngineSettings, UpstreamSettings, load_upstreams
from tests.unit.gateway.upstreams.pool_engines import ask, engines

TOML = """
default = "policy"
retries = 1

[[pools]]
name = "policy"
aliases = ["claude-sonnet-4-5"]

[[pools.engines]]
name = "vllm-0"
url = "http://127.0.0.1:8000/v1"
update_weights = true

[[pools]]
name = "judge"
trainable = false

[[pools.engines]]
name = "openai"
kind = "openai"
url = "https://api.example.com/v1"
model = "gpt"
"""


def test_a_file_may_be_toml_or_json(tmp_path: Path) -> None:
    (tmp_path / "u.toml").write_text(TOML)
    settings = load_upstreams(tmp_path / "u.toml")
    (tmp_path / "u.json").write_text(settings.model_dump_json())
    assert load_upstreams(tmp_path / "u.json") == settings
    assert [pool.policy_name for pool in settings.pools] == ["policy", None]
    assert GatewaySettings(upstreams_file=tmp_path / "u.toml").upstream_kind == "vllm"
    assert UpstreamSettings.of(GatewaySettings(upstreams_file=tmp_path / "u.toml")) == settings


def test_the_example_file_can_be_used() -> None:
    pools = load_upstreams(Path(upstreams.__file__).parent / "example.toml").pools
    assert [engine.kind for pool in pools for engine in pool.engines] == ["vllm", "sglang", "openai"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pools = 1", "pools"),
        ("x = ", "no valid toml"),
        ("pools = []", "pools"),
        (TOML.replace('"judge"', '"policy"'), "two have the model name 'policy'"),
        (TOML.replace('"openai"\nkind', '"vllm-0"\nkind'), "two have the engine name 'vllm-0'"),
        (TOML.replace("retries", "retry"), "retry"),
        (TOML.replace('default = "policy"', 'default = "x"'), "'x'"),
        (TOML.replace('kind = "openai"', 'kind = "tgi"'), "kind"),
        (TOML.replace("http://127", "127"), "url"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "u.toml").write_text(text)
    with pytest.raises(ContractViolation) as caught:
        load_upstreams(tmp_path / "u.toml")
    assert told in str(caught.value)


def test_a_file_that_is_not_there_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(ContractViolation, match="AGENTWORLD_GATEWAY_UPSTREAMS_FILE"):
        load_upstreams(tmp_path / "none.toml")


def test_a_key_whose_variable_is_not_set_is_told_and_no_key_is_ever_printed() -> None:
    engine = EngineSettings(name="e", url="http://x/v1", api_key_env="NO_SUCH_VARIABLE_HERE")
    with pytest.raises(ContractViolation, match="NO_SUCH_VARIABLE_HERE"):
        engine.key()
    assert "hidden" not in repr(EngineSettings(name="e", url="http://x/v1", api_key="hidden"))


async def test_one_engine_from_the_environment_takes_every_model_name_and_the_clients_token() -> None:
    async with engines("a") as (a,):
        a.models = ["tiny", "other"]
        upstream = Upstream(
            GatewaySettings(upstream_url=a.url, upstream_model="tiny", upstream_aliases=["claude-sonnet-4-5"])
        )
        try:
            answers = [
                await ask(upstream, name, authorization="Bearer client")
                for name in ("default", "claude-sonnet-4-5", "anything")
            ]
            listed = json.loads(await upstream.models(authorization=""))
        finally:
            await upstream.close()
    assert [body["model"] for body in a.asked] == ["tiny", "tiny", "anything"]
    assert a.headers[0]["Authorization"] == "Bearer client"
    assert {(answer.engine, answer.policy) for answer in answers} == {("default", None)}
    assert [entry["id"] for entry in listed["data"]] == ["tiny", "other", "claude-sonnet-4-5"]
