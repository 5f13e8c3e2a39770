"""Records as frames of a file: length, CRC-32, payload. A torn tail is seen and cut."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from agentworld.platform.log import OutRecord

_HEAD = struct.Struct("<II")
_encoder = msgspec.msgpack.Encoder()
_Frame = tuple[str, bytes | None, bytes, list[tuple[str, bytes]], int | None, bool]
_decoder = msgspec.msgpack.Decoder(_Frame)


def encode_frame(record: OutRecord) -> bytes:
    """One record as a frame."""
    payload = _encoder.encode(
        (record.topic, record.key, record.value, record.headers, record.partition, record.tombstone)
    )
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def read_frames(file: BinaryIO) -> Iterator[tuple[OutRecord, int]]:
    """Records from the file's position on, each with the offset after it; stops at the first bad frame."""
    offset = file.tell()
    while True:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return
        length, crc = _HEAD.unpack(head)
        payload = file.read(length) if length else b""
        if not length or len(payload) < length or zlib.crc32(payload) != crc:
            return
        try:
            topic, key, value, headers, partition, tombstone = _decoder.decode(payload)
        except msgspec.MsgspecError:
            return
        offset += _HEAD.size + length
        record = OutRecord(topic, key, value, tuple(headers), partition, tombstone)
        yield record, offset


def sound_bytes(path: Path) -> int:
    """How many bytes from the file's beginning are whole frames."""
    end = 0
    with path.open("rb") as file:
        for _, end in read_frames(file):  # noqa: B007 - the last one counts
            pass
    return end


def is_torn(path: Path, offset: int) -> bool:
    """Whether what follows `offset` is one unfinished write, rather than damage with frames behind it."""
    with path.open("rb") as file:
        file.seek(offset)
        rest = file.read(_HEAD.size)
        if len(rest) < _HEAD.size:
            return True
        length, _ = _HEAD.unpack(rest)
        return bool(length == 0 or offset + _HEAD.size + length >= path.stat().st_size)
