"""One engine of a pool: its connection, adapter, health, load and weights version."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping

from agentworld.platform.metrics import counter, gauge
from gateway.canonical import ChatCall
from gateway.engine import Answer
from gateway.engines import EngineAdapter, adapter_of
from gateway.engines.completions import CompletionsAdapter
from gateway.engines.tokenizers import Tokenizer, load_tokenizer, retokenize
from gateway.failures import Failure
from gateway.upstream_settings import EngineSettings, UpstreamSettings
from gateway.upstreams.breaker import Breaker
from gateway.upstreams.continuing import Continuing
from gateway.upstreams.failed import UpstreamFailed
from gateway.upstreams.http import EngineHttp, HttpReply
from gateway.upstreams.models import listed_models

logger = logging.getLogger(__name__)

_REFUSALS = frozenset({400, 403, 404, 415, 422})
_BREAKER_LEVEL = {"closed": 0.0, "half_open": 0.5, "open": 1.0}
_UNBOUNDED = Failure(
    400,
    "max_tokens_missing",
    "this engine is SGLang, which stops after 16 tokens where it is not told: name `max_tokens`",
    param="max_tokens",
)


class Member:
    """One engine. Needs a running event loop when created."""

    def __init__(self, settings: EngineSettings, upstreams: UpstreamSettings) -> None:
        self.settings = settings
        self.name = settings.name
        self.http = EngineHttp(settings)
        self._chat = adapter_of(settings.kind, logprobs=settings.logprobs)
        self._completions = CompletionsAdapter(logprobs=settings.logprobs)
        self.breaker = Breaker(
            failures=upstreams.breaker_failures,
            open_s=upstreams.breaker_open_ms / 1000,
            clock=time.monotonic,
        )
        self._continuing = Continuing(settings, self.http)
        self.well = True
        """What the last health checks said."""
        self.open_calls = 0
        self.version: int | None = None
        """Version of the weights it serves, as far as this gateway knows."""
        self._open_gate = asyncio.Event()
        self._open_gate.set()
        self._model = settings.model
        self._refused: defaultdict[str, set[str]] = defaultdict(set)
        self._tokenizer: Tokenizer | None = None
        if settings.tokenizer:
            self._tokenizer = load_tokenizer(settings.tokenizer, settings.chat_template)

    @property
    def held(self) -> bool:
        """Whether calls wait because its weights are being replaced."""
        return not self._open_gate.is_set()

    def hold(self) -> None:
        """New calls wait from here on."""
        self._open_gate.clear()

    def let_go(self) -> None:
        """Waiting calls go on."""
        self._open_gate.set()

    async def until_let_go(self) -> None:
        """Wait while calls are held."""
        await self._open_gate.wait()

    def adapter_for(self, call: ChatCall) -> EngineAdapter:
        """What speaks the protocol that the call takes at this engine."""
        return self._chat if call.is_chat else self._completions

    async def model_name(self, asked: str | None, *, authorization: str) -> str:
        """The engine's name for its model; `asked` is used where given. Raises `UpstreamFailed`."""
        if asked is not None:
            return asked
        if not self._model:
            listed = listed_models(await self.http.models(authorization=authorization))
            if len(listed) != 1:
                raise UpstreamFailed("failed", self._ambiguous(listed), answered=200)
            self._model = next(iter(listed))
        return self._model

    def _ambiguous(self, listed: Mapping[str, object]) -> Failure:
        return Failure(
            400,
            "model_ambiguous",
            f"model `default` needs an engine with exactly one model, `{self.name}` lists {len(listed)}: "
            "name one, or set AGENTWORLD_GATEWAY_UPSTREAM_MODEL (`model` in the upstreams file)",
            param="model",
        )

    async def begin(self, call: ChatCall, *, model: str | None, authorization: str) -> HttpReply:
        """Send the call, less what this engine is known to refuse. Raises `UpstreamFailed`."""
        if self.settings.kind == "sglang" and bytes(call.fields.get("max_tokens", b"")) == b"null":
            raise UpstreamFailed("failed", _UNBOUNDED, answered=400)
        name = await self.model_name(model, authorization=authorization)
        refused = self._refused[name]
        await self._continuing.prepare(call, model=name, authorization=authorization)
        adapter = self.adapter_for(call)
        path = "/chat/completions" if call.is_chat else "/completions"
        while True:
            body = adapter.body(call, model=name, without=refused)
            try:
                return await self.http.begin(path, body, authorization=authorization)
            except UpstreamFailed as exc:
                if exc.answered not in _REFUSALS:
                    raise
                added = {n for n in adapter.added(call) if n not in refused and n not in call.fields}
                named = {n for n in added if _names(exc.failure, n)}
                if not named:
                    raise
                logger.warning(
                    "engine %s refuses %s and is asked without", self.name, ", ".join(sorted(named))
                )
                refused |= named

    async def complete(self, call: ChatCall, answer: Answer) -> None:
        """Check that the answer is to the ids given; with a tokenizer, give it the ids that it lacks."""
        self._continuing.check(call, answer)
        if self._tokenizer is not None and call.is_chat and answer.choices:
            try:
                await asyncio.to_thread(retokenize, call, answer, self._tokenizer)
            except Exception:  # a tokenizer or template of the user's: the step goes without ids
                logger.exception("a step of engine %s could not be retokenized", self.name)

    def answered(self) -> None:
        """A call was answered to its end."""
        self.breaker.succeeded()
        counter("gateway_engine_calls", "engine", "outcome").labels(self.name, "answered").inc()

    def failed(self, *, blamed: bool) -> None:
        """A call was not: the engine is to blame, or it refused, or its answer was not usable here."""
        if blamed:
            self.breaker.failed()
        else:
            self.breaker.succeeded()
        outcome = "failed" if blamed else "refused"
        counter("gateway_engine_calls", "engine", "outcome").labels(self.name, outcome).inc()

    def measure(self) -> None:
        """Set its gauges."""
        gauge("gateway_engine_open_calls", "engine").labels(self.name).set(self.open_calls)
        gauge("gateway_engine_well", "engine").labels(self.name).set(self.well)
        gauge("gateway_engine_held", "engine").labels(self.name).set(self.held)
        gauge("gateway_engine_breaker", "engine").labels(self.name).set(_BREAKER_LEVEL[self.breaker.state])

    def state(self) -> dict[str, object]:
        """For `/health`."""
        state: dict[str, object] = {
            "well": self.well,
            "breaker": self.breaker.state,
            "open_calls": self.open_calls,
            "held": self.held,
        }
        if self.settings.continue_tokens:
            state["continues_tokens"] = self._continuing.on
        if self.version is not None:
            state["policy_version"] = self.version
        return state


def _names(failure: Failure, field: str) -> bool:
    return failure.param == field or field in failure.message
