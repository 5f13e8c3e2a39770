"""Makes an engine's calls continue from sampled ids: renders through it, and checks that it obeyed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from gateway.canonical import ChatCall
from gateway.engine import Answer, MalformedReply
from gateway.engines.continuing import (
    CannotContinue,
    check_same_words,
    continued,
    probe,
    read_text,
    reading_body,
    reading_path,
    rendered_ids,
    rendering_body,
    rendering_path,
)
from gateway.upstream_settings import EngineSettings
from gateway.upstreams.http import EngineHttp, UpstreamFailed

logger = logging.getLogger(__name__)

_RENDERING_S = 10.0
"""A call is not held up longer for this: it is then rendered as any other."""
_NO_ROUTE = frozenset({404, 405, 501})
DISOBEYED = "engine_rendered_anew"


class Continuing:
    """Of one engine. Goes off where the engine cannot render, or ignores the ids that it is given."""

    def __init__(self, settings: EngineSettings, http: EngineHttp) -> None:
        self._kind = settings.kind
        self._name = settings.name
        self._http = http
        self.on = settings.continue_tokens

    async def prepare(self, call: ChatCall, *, model: str, authorization: str) -> None:
        """Give the call its prompt as ids where it continues an earlier step; else say why it does not."""
        call.continuing = self.on
        if not call.is_chat:
            return
        call.prompt_ids = None
        if not self.on or call.earlier is None:
            return
        if call.continued is None and not call.declined:
            try:
                await self._continue(call, model, authorization)
            except CannotContinue as exc:
                call.declined = str(exc)
        if call.continued is not None:
            call.prompt_ids = call.continued.ids

    async def _continue(self, call: ChatCall, model: str, authorization: str) -> None:
        assert call.earlier is not None
        probed = probe(call, call.earlier)
        try:
            async with asyncio.timeout(_RENDERING_S):
                both = await asyncio.gather(
                    self._rendered(call, call.messages, model, authorization),
                    self._rendered(call, probed, model, authorization),
                )
                prompt = continued(call.earlier, *both)
                sampled, rendered = prompt.turns()
                if sampled != rendered:
                    texts = await asyncio.gather(
                        self._text(sampled, model, authorization), self._text(rendered, model, authorization)
                    )
                    check_same_words(*texts)
        except UpstreamFailed as exc:
            if exc.answered in _NO_ROUTE:
                self._turn_off(f"it lacks {rendering_path(self._kind)} or {reading_path(self._kind)}")
            raise CannotContinue("rendering_failed") from exc
        except (TimeoutError, MalformedReply) as exc:
            raise CannotContinue("rendering_failed") from exc
        call.continued = prompt

    async def _text(self, ids: list[int], model: str, authorization: str) -> str:
        body = reading_body(ids, model=model)
        return read_text(
            await self._http.post_beside(reading_path(self._kind), body, authorization=authorization)
        )

    async def _rendered(
        self, call: ChatCall, messages: Sequence[bytes], model: str, authorization: str
    ) -> list[int]:
        body = rendering_body(self._kind, call, messages, model=model)
        return rendered_ids(
            await self._http.post_beside(rendering_path(self._kind), body, authorization=authorization)
        )

    def check(self, call: ChatCall, answer: Answer) -> None:
        """See whether an answer is to the ids given. The engine's own word about its prompt counts."""
        if not call.is_chat or call.prompt_ids is None or answer.prompt_ids == call.prompt_ids:
            return
        call.declined, call.continued = DISOBEYED, None
        self._turn_off("it ignored the prompt given as ids, or does not say what its prompt was")

    def _turn_off(self, why: str) -> None:
        if self.on:
            logger.warning(
                "engine %s is not asked to continue from sampled ids any more (%s): "
                "use a newer one, or take `continue_tokens` out of its settings",
                self._name,
                why,
            )
        self.on = False
