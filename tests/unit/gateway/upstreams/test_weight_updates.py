"""Published weights reach the engines, calls wait meanwhile, and steps say which version answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from tests.unit.gateway.scripted_engine import reply_body
from tests.unit.gateway.upstreams.pool_engines import ask, engines, pool, published, until, upstream_of

UPDATED = {"update_weights": True}
VLLM = [
    ("/pause?mode=wait", None),
    ("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": "/weights/v7"}}),
    ("/reset_prefix_cache", None),
    ("/update_weight_version", {"new_version": "7"}),
    ("/resume", None),
]
SGLANG = {"model_path": "/weights/v7", "weight_version": "7", "flush_cache": True}


def versions(answer: Any) -> tuple[int | None, int | None]:
    return answer.version_start, answer.version_end


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("vllm", VLLM),
        ("sglang", [("/update_weights_from_disk", SGLANG)]),
        ("policy_server", [("/reload", {"path": "/weights/v7", "version": 7})]),
    ],
)
async def test_each_kind_of_engine_loads_a_published_version(kind: str, expected: list[Any]) -> None:
    async with (
        engines("a") as (a,),
        upstream_of(pool("policy", a, engine={"kind": kind, **UPDATED})) as upstream,
    ):
        upstream.published(published(7))
        await until(lambda: upstream.state()["a"].get("policy_version") == 7)  # type: ignore[attr-defined]
        assert versions(await ask(upstream)) == (7, 7)
    asked = [c for c in a.controls if c[0] not in {"/weight_info", "/is_paused", "/get_model_info"}]
    assert asked == expected
    assert not a.paused


async def test_calls_wait_for_the_update_and_get_the_new_version() -> None:
    async with engines("a") as (a,), upstream_of(pool("policy", a, engine=UPDATED)) as upstream:
        a.may_load.clear()
        upstream.published(published(7))
        await a.loading.wait()
        waiting = asyncio.create_task(ask(upstream))
        await until(lambda: upstream.state()["a"]["held"])  # type: ignore[index]
        await asyncio.sleep(0.05)
        assert not a.asked
        a.may_load.set()
        assert versions(await waiting) == (7, 7)


async def test_a_client_that_leaves_while_its_call_is_held_costs_nothing() -> None:
    async with engines("a") as (a,), upstream_of(pool("policy", a, engine=UPDATED)) as upstream:
        a.may_load.clear()
        upstream.published(published(7))
        await a.loading.wait()
        waiting = asyncio.create_task(ask(upstream))
        await asyncio.sleep(0.02)
        waiting.cancel()
        await asyncio.wait([waiting])
        a.may_load.set()
        await ask(upstream)
    assert len(a.asked) == 1
    assert upstream.state()["a"]["open_calls"] == 0  # type: ignore[index]


async def test_while_one_engine_loads_another_takes_its_calls() -> None:
    async with engines("a", "b") as (a, b):
        policy = pool("policy", a, b)
        policy["engines"][0]["update_weights"] = True
        async with upstream_of(policy) as upstream:
            a.may_load.clear()
            upstream.published(published(7))
            await a.loading.wait()
            answers = [await ask(upstream, affinity=f"t{i}") for i in range(8)]
            a.may_load.set()
    assert {answer.engine for answer in answers} == {"b"}


async def test_a_call_under_way_while_weights_change_has_both_versions() -> None:
    async with engines("a") as (a,), upstream_of(pool("policy", a, engine=UPDATED)) as upstream:
        upstream.published(published(6))
        await until(lambda: upstream.state()["a"].get("policy_version") == 6)  # type: ignore[attr-defined]
        release = asyncio.Event()

        async def slow(_: web.Request, __: dict[str, Any]) -> web.StreamResponse:
            await release.wait()
            return web.json_response(reply_body())

        a.answers = slow
        under_way = asyncio.create_task(ask(upstream))
        await until(lambda: a.asked)
        upstream.published(published(7))
        await until(lambda: upstream.state()["a"].get("policy_version") == 7)  # type: ignore[attr-defined]
        release.set()
        assert versions(await under_way) == (6, 7)


async def test_the_engines_own_word_about_its_version_counts_most() -> None:
    async with engines("a") as (a,), upstream_of(pool("policy", a)) as upstream:
        upstream.published(published(7))

        async def says(_: web.Request, __: dict[str, Any]) -> web.StreamResponse:
            return web.json_response(reply_body(weight_versions=["5", "6"]))

        a.answers = says
        assert versions(await ask(upstream)) == (5, 6)


async def test_an_engine_that_cannot_load_keeps_its_old_version_and_the_others_go_on() -> None:
    async with (
        engines("a", "b") as (a, b),
        upstream_of(pool("policy", a, b, engine=UPDATED), update_tries=2) as upstream,
    ):
        upstream.published(published(6))
        await until(lambda: all(s.get("policy_version") == 6 for s in upstream.state().values()))  # type: ignore[attr-defined]
        a.refuses["/collective_rpc"] = 2
        upstream.published(published(7))
        await until(lambda: "update" in upstream.state()["a"])  # type: ignore[operator]
        await until(lambda: a.refuses["/collective_rpc"] == 0 and not upstream.state()["a"]["held"])  # type: ignore[index]
        await until(lambda: upstream.state()["b"]["policy_version"] == 7)  # type: ignore[index]
        seen = {
            (answer.engine, answer.version_end)
            for answer in [await ask(upstream, affinity=f"t{i}") for i in range(16)]
        }
        assert seen == {("a", 6), ("b", 7)}
        assert "version 7 was not loaded" in upstream.state()["a"]["update"]  # type: ignore[index]
        assert not a.paused
        upstream.published(published(8))
        await until(lambda: all(s["policy_version"] == 8 for s in upstream.state().values()))  # type: ignore[index]
        assert "update" not in upstream.state()["a"]  # type: ignore[operator]


async def test_a_resume_that_failed_is_made_good() -> None:
    async with engines("a") as (a,), upstream_of(pool("policy", a, engine=UPDATED)) as upstream:
        a.refuses["/resume"] = 1
        upstream.published(published(7))
        await until(lambda: upstream.state()["a"].get("policy_version") == 7 and not a.paused)  # type: ignore[attr-defined]


async def test_only_the_newest_of_many_versions_is_loaded_and_replays_change_nothing() -> None:
    async with engines("a") as (a,), upstream_of(pool("policy", a, engine=UPDATED)) as upstream:
        for version in range(1, 8):
            upstream.published(published(version))
        await until(lambda: upstream.state()["a"].get("policy_version") == 7)  # type: ignore[attr-defined]
        for version in range(1, 8):
            upstream.published(published(version))
        await asyncio.sleep(0.05)
        rollback = published(3, at=100)
        upstream.published(rollback)
        await until(lambda: upstream.state()["a"]["policy_version"] == 3)  # type: ignore[index]
    loaded = [body["kwargs"]["weights_path"] for path, body in a.controls if path == "/collective_rpc"]
    assert loaded == ["/weights/v7", "/weights/v3"]


async def test_an_engine_that_serves_the_version_already_is_left_alone() -> None:
    async with engines("a") as (a,), upstream_of(pool("policy", a, engine=UPDATED)) as upstream:
        a.version = "7"
        upstream.published(published(7))
        await until(lambda: upstream.state()["a"].get("policy_version") == 7)  # type: ignore[attr-defined]
    assert not [path for path, _ in a.controls if path.startswith("/pause")]


async def test_by_default_no_engine_is_touched_and_the_published_version_is_assumed() -> None:
    async with engines("p", "j") as (p, j):
        pools = [pool("policy", p), pool("judge", j, trainable=False)]
        async with upstream_of(*pools) as upstream:
            upstream.published(published(7))
            assert versions(await ask(upstream)) == (7, 7)
            assert versions(await ask(upstream, "judge")) == (None, None)
    assert not p.controls
