"""The spool: order, torn tails, bounds, kill and restart."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentworld.contract.errors import ContractViolation, Unavailable
from agentworld.platform.log import OutRecord
from gateway.frames import encode_frame
from gateway.spool import Spool

MiB = 1024 * 1024
ROOT = Path(__file__).parents[3]


def record(number: int, size: int = 10) -> OutRecord:
    value = b"%d:" % number + b"x" * size
    return OutRecord(topic="trajectory-events", key=b"p", value=value, headers=(("type", b"t"),))


def number_of(found: OutRecord) -> int:
    return int(found.value.split(b":")[0])


async def drain(spool: Spool, limit: int = MiB) -> list[int]:
    numbers = []
    while batch := await spool.read(limit):
        numbers += [number_of(found) for found, _ in batch]
        spool.drained(batch[-1][1])
    return numbers


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("pending-*.log"))


async def test_records_come_out_as_they_went_in_and_leave_no_file(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=MiB, segment_bytes=200)
    for number in range(20):
        await spool.append(record(number))
    assert len(segments(tmp_path)) > 1
    assert spool.pending_bytes == spool.unread_bytes > 0
    assert await drain(spool, limit=100) == list(range(20))
    assert spool.pending_bytes == 0
    assert segments(tmp_path) == []
    await spool.append(record(20))
    assert await drain(spool) == [20]
    await spool.close()


async def test_every_field_of_a_record_survives(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=MiB)
    records = [
        OutRecord("trajectory-events", None, b"\x00\xff", (("a", b"1"), ("a", b"")), 3),
        OutRecord("trajectory-directory", b"k", b"", (), None, tombstone=True),
    ]
    for one in records:
        await spool.append(one)
    assert [found for found, _ in await spool.read(MiB)] == records
    await spool.close()


async def test_concurrent_appends_keep_their_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=MiB)
    await asyncio.gather(*(spool.append(record(number)) for number in range(200)))
    assert await drain(spool) == list(range(200))
    await spool.close()


async def test_what_was_read_and_not_drained_comes_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=MiB, segment_bytes=100)
    for number in range(6):
        await spool.append(record(number))
    first = await spool.read(1)
    spool.drained(first[-1][1])
    await spool.read(1)
    await spool.read(1)
    spool.rewind()
    assert await drain(spool) == list(range(len(first), 6))
    await spool.close()


async def test_a_restart_finds_what_was_not_drained(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=MiB, segment_bytes=100)
    for number in range(9):
        await spool.append(record(number))
    await spool.close()
    again = Spool(tmp_path, max_bytes=MiB)
    assert again.pending_bytes == 9 * len(encode_frame(record(0)))
    await again.append(record(9))
    assert await drain(again) == list(range(10))
    await again.close()


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(1, 200), junk=st.binary(max_size=30))
def test_a_torn_tail_is_cut_and_everything_before_it_kept(
    tmp_path_factory: pytest.TempPathFactory, cut: int, junk: bytes
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    frames = [encode_frame(record(number)) for number in range(5)]
    whole = b"".join(frames)
    kept = whole[: max(0, len(whole) - cut)]
    count = sum(len(b"".join(frames[: i + 1])) <= len(kept) for i in range(5))
    boundary = len(b"".join(frames[:count]))
    (folder / "pending-000000000001.log").write_bytes(kept if len(kept) > boundary else kept + junk)

    async def run() -> list[int]:
        spool = Spool(folder, max_bytes=MiB)
        await spool.append(record(99))
        numbers = await drain(spool)
        await spool.close()
        return numbers

    assert asyncio.run(run()) == [*range(count), 99]


async def test_damage_within_a_segment_is_set_aside_for_people(tmp_path: Path) -> None:
    frames = [bytearray(encode_frame(record(number))) for number in range(4)]
    frames[1][12] ^= 0xFF
    path = tmp_path / "pending-000000000001.log"
    path.write_bytes(b"".join(frames))
    spool = Spool(tmp_path, max_bytes=MiB)
    assert await drain(spool) == [0]
    assert path.with_suffix(".damaged").read_bytes() == b"".join(frames)
    await spool.close()


async def test_a_full_spool_refuses_and_takes_again_once_drained(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=300)
    taken = 0
    while spool.pending_bytes + len(encode_frame(record(taken))) <= 300:
        await spool.append(record(taken))
        taken += 1
    assert taken > 0
    assert spool.full
    with pytest.raises(Unavailable, match="SPOOL_MAX_BYTES"):
        await spool.append(record(taken))
    assert await drain(spool) == list(range(taken))
    await spool.append(record(taken))
    await spool.close()


async def test_two_gateways_never_share_a_folder(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=MiB)
    with pytest.raises(ContractViolation, match="AGENTWORLD_GATEWAY_INSTANCE"):
        Spool(tmp_path, max_bytes=MiB)
    await spool.close()
    await Spool(tmp_path, max_bytes=MiB).close()


async def test_a_disk_that_fails_refuses_and_loses_nothing_before(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=MiB, segment_bytes=1)
    await spool.append(record(0))
    tmp_path.chmod(0o500)
    moved = tmp_path.with_name(tmp_path.name + "-moved")
    tmp_path.rename(moved)
    with pytest.raises(Unavailable, match="spool cannot be written"):
        await spool.append(record(1))
    moved.rename(tmp_path)
    tmp_path.chmod(0o700)
    await spool.append(record(2))
    assert await drain(spool) == [0, 2]
    await spool.close()


WRITER = """
import asyncio, sys
from pathlib import Path
from gateway.spool import Spool
from tests.unit.gateway.test_spool import record

async def main():
    spool = Spool(Path(sys.argv[1]), max_bytes=1 << 30, segment_bytes=4096)
    async def writer(start):
        for number in range(start, 10_000_000, 4):
            await spool.append(record(number, size=50))
            print(number, flush=True)
    await asyncio.gather(*(writer(start) for start in range(4)))

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [1, 37, 150])
async def test_what_was_answered_before_a_kill_is_there_after_it(tmp_path: Path, after: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    answered = [int(process.stdout.readline()) for _ in range(after)]
    os.kill(process.pid, signal.SIGKILL)
    answered += [int(line) for line in process.stdout.read().splitlines() if line]
    process.wait()
    process.stdout.close()
    spool = Spool(tmp_path, max_bytes=MiB)
    found = await drain(spool)
    await spool.close()
    assert set(answered) <= set(found)
    for start in range(4):
        own = [number for number in found if number % 4 == start]
        assert own == sorted(own)
