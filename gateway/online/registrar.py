"""Finds or begins the trajectory of a call that names none."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentworld.contract.errors import InvalidInput
from agentworld.contract.events import Json
from agentworld.contract.ids import derived_id, new_id
from gateway.canonical import ChatCall
from gateway.directory import Directory, DirectoryAway, Entry
from gateway.online.conversations import Conversations
from gateway.online.identity import Named, named
from gateway.online.said import prefixes
from gateway.restore.echoes import read
from gateway.trajectories import Trajectories

_MOST_RESUMPTIONS = 1000


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a call belongs, and what was said in it as the client sent it."""

    entry: Entry
    said: Sequence[bytes]


class Online:
    """Places calls of online mode. A conversation with an id has the same trajectory on every gateway."""

    def __init__(
        self,
        *,
        trajectories: Trajectories,
        directory: Directory,
        conversations: Conversations,
        channel: str,
    ) -> None:
        self._trajectories = trajectories
        self._directory = directory
        self._conversations = conversations
        self._channel = channel

    async def place(self, call: ChatCall, ids: Mapping[str, str]) -> Placed:
        """The open trajectory of the call, registered now if it begins one."""
        said = prefixes(call.messages) if call.is_chat else [_prompt_digest(call)]
        name = named(ids)
        if name is not None:
            return Placed(await self._named(name), said)
        found = self._conversations.find(said)
        if found is not None:
            entry = await self._known(found)
            if entry is not None and entry.state == "open":
                return Placed(entry, said)
        prompt_id = f"online-{derived_id('online-task', _opening(call, said).hex())}"
        return Placed(await self._register(f"online-{new_id()}", prompt_id, {}), said)

    def sampled(self, placed: Placed, message: bytes) -> None:
        """The call's answer, as the client saw it, is durable."""
        self._conversations.sampled(placed.entry.trajectory_id, placed.said, message)

    def failed(self, placed: Placed) -> None:
        """The call got no answer: the same prompt again is its repetition."""
        self._conversations.failed(placed.entry.trajectory_id, placed.said)

    async def _named(self, name: Named) -> Entry:
        """The conversation's newest trajectory: one that was completed is followed by another."""
        for part in range(_MOST_RESUMPTIONS):
            trajectory_id, prompt_id = _ids_of(name.key, part)
            entry = await self._known(trajectory_id)
            if entry is None:
                metadata: Json = {"conversation": name.key}
                if name.parent is not None:
                    metadata["parent_trajectory_id"] = _ids_of(name.parent, 0)[0]
                entry = await self._register(trajectory_id, prompt_id, metadata)
            if entry.state == "open":
                return entry
        raise InvalidInput(
            f"the conversation was resumed {_MOST_RESUMPTIONS} times: begin another",
            code="too_many_resumptions",
            status=409,
        )

    async def _known(self, trajectory_id: str) -> Entry | None:
        try:
            return self._directory.get(trajectory_id) or await self._directory.find(trajectory_id)
        except DirectoryAway:
            return None

    async def _register(self, trajectory_id: str, prompt_id: str, metadata: Json) -> Entry:
        return await self._trajectories.register(
            trajectory_id, prompt_id, channel=self._channel, metadata=metadata, registered_by="gateway"
        )


def _ids_of(key: str, part: int) -> tuple[str, str]:
    trajectory = derived_id("online-trajectory", key, part)
    return f"online-{trajectory}", f"online-{derived_id('online-task', key)}"


def _prompt_digest(call: ChatCall) -> bytes:
    """Of a text completion, which no other continues."""
    return hashlib.blake2b(bytes(call.fields["prompt"]), digest_size=16).digest()


def _opening(call: ChatCall, said: Sequence[bytes]) -> bytes:
    """Digest of all that was said before the first answer in the history."""
    for place, message in enumerate(call.messages):
        if place and read(message).role == "assistant":
            return said[place - 1]
    return said[-1] if said else b""
