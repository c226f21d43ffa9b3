"""The recorded request frames of release 0.13.2, byte for byte, against a running node."""

from __future__ import annotations

import gzip
import json
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from waltz_storage.engine.inspect import inspect_directory

from .node_support import RawConnection, raw_connection, running_node
from .support import KEY, wire_records

# Session 5, partition 3 of 4; the requests of the description, with the sequence numbers they have there.
OPEN = "5300000000002901ffffffffffffffffffffffffffffffffffffffff00112233445566778899aabbccddeeff00000004"
OPENED = "5300000000001507ffffffffffffffffffffffffffffffffffffffff"
LAST_SESSION = "5300000000001602000000000000000500000000000000000000000300"
SET_MARK = "5300000000001e040000000000000005000000000000000100000003000000000000002900"
OFFLINE_TRUNCATE = "5300000000001e050000000000000005000000000000000200000003000000000000002901"
APPEND_42 = (
    "5300000000004306000000000000000500000000000000030000000300000001000000000000002a"
    "00000007000000010000000300000001000004d20000000568656c6c6f3610a68600"
)
SUCCESS_3 = "53000000000015070000000000000005000000000000000300000003"
HEADER_42 = "5300000000001d090000000000000005000000000000000400000003000000000000002a"
HEADER_REPLY = (
    "530000000000320a000000000000000500000000000000040000000301000000000000002a"
    "00000007000000010000000300000001000004d2"
)
HEADER_NOT_FOUND = "530000000000160a000000000000000500000000000000040000000300"
RECORD_42 = "5300000000001d0b0000000000000005000000000000000500000003000000000000002a"
RECORD_REPLY = (
    "5300000000003f0c000000000000000500000000000000050000000301000000000000002a"
    "00000007000000010000000300000001000004d20000000568656c6c6f3610a686"
)
RECORD_NOT_FOUND = "530000000000160c000000000000000500000000000000050000000300"
MAX_TXID = "530000000000160d000000000000000500000000000000060000000300"
MAX_TXID_REPLY = "5300000000001d0e0000000000000005000000000000000600000003000000000000002a"
HEADER_LIST = "530000000000210f0000000000000005000000000000000700000003000000000000002a00000014"
HEADER_LIST_REPLY = (
    "5300000000003510000000000000000500000000000000070000000300000001000000000000002a"
    "00000007000000010000000300000001000004d2"
)
RECORD_LIST = "53000000000021110000000000000005000000000000000800000003000000000000002a00000014"
RECORD_LIST_REPLY = (
    "5300000000004212000000000000000500000000000000080000000300000001000000000000002a"
    "00000007000000010000000300000001000004d20000000568656c6c6f3610a686"
)
SESSION_REPLY = (
    "5300000000002d030000000000000005000000000000000000000003000000000000000500000000000000290000000000000029"
)

ADMIN_OPEN = "4100000000001d03ffffffffffffffff00112233445566778899aabbccddeeff00000004"
ADMIN_OPENED = "4100000000000901ffffffffffffffff"
ADMIN_ASSIGN = "410000000000170600000000000000010000000200000000000000030100"
ADMIN_SUCCESS = "41000000000009010000000000000001"
ADMIN_AVAILABLE = "4100000000001604000000000000000100000002000000000000000301"
ADMIN_UNASSIGN = "410000000000170600000000000000010000000200000000000000030001"
ADMIN_RECORD_LIST = "4100000000001907000000000000000100000003000000000000002a00000014"
ADMIN_RECORD_LIST_REPLY = (
    "4100000000003a0800000000000000010000000300000001000000000000002a"
    "00000007000000010000000300000001000004d20000000568656c6c6f3610a686"
)
ADMIN_SESSION = "4100000000000d09000000000000000100000003"
ADMIN_SESSION_REPLY = (
    "410000000000250a000000000000000100000003000000000000000500000000000000290000000000000029"
)
ADMIN_STATUS = "410000000000090d0000000000000001"
ADMIN_STATUS_REPLY = "410000000000170e00000000000000010000000200000000010000000301"


async def exchange(connection: RawConnection, request: str, reply: str) -> None:
    await connection.send(bytes.fromhex(request))
    assert (await connection.frame()).hex() == reply


async def test_zookeeper_6_26_request_sequence_of_the_description(tmp_path: Path) -> None:
    async with (
        running_node(tmp_path) as node,
        raw_connection(node, admin=True) as tool,
        raw_connection(node) as peer,
    ):
        await exchange(tool, ADMIN_OPEN, ADMIN_OPENED)
        await exchange(tool, ADMIN_ASSIGN, ADMIN_SUCCESS)
        await exchange(tool, ADMIN_AVAILABLE, ADMIN_SUCCESS)
        await exchange(tool, ADMIN_STATUS, ADMIN_STATUS_REPLY)
        await exchange(peer, OPEN, OPENED)
        # Transactions 0 to 41 come first, in two requests.
        for first, count in ((0, 20), (20, 22)):
            body = wire_records(first, count)
            size = 26 + len(body)
            head = bytes.fromhex("53 0000") + size.to_bytes(4, "big") + b"\x06"
            ids = (5).to_bytes(8, "big") + (3).to_bytes(8, "big") + (3).to_bytes(4, "big")
            await peer.send(head + ids + count.to_bytes(4, "big") + body + b"\0")
            assert (await peer.frame()).hex() == SUCCESS_3
        await exchange(peer, SET_MARK, "53000000000015070000000000000005000000000000000100000003")
        await exchange(peer, LAST_SESSION, SESSION_REPLY)
        await exchange(peer, HEADER_42, HEADER_NOT_FOUND)
        await exchange(peer, RECORD_42, RECORD_NOT_FOUND)
        await exchange(peer, APPEND_42, SUCCESS_3)
        await exchange(peer, HEADER_42, HEADER_REPLY)
        await exchange(peer, RECORD_42, RECORD_REPLY)
        await exchange(peer, MAX_TXID, MAX_TXID_REPLY)
        await exchange(peer, HEADER_LIST, HEADER_LIST_REPLY)
        await exchange(peer, RECORD_LIST, RECORD_LIST_REPLY)
        await exchange(tool, ADMIN_RECORD_LIST, ADMIN_RECORD_LIST_REPLY)
        await exchange(tool, ADMIN_SESSION, ADMIN_SESSION_REPLY)
        await peer.send(bytes.fromhex(OFFLINE_TRUNCATE))
        assert (await peer.frame())[7] == 8  # the partition is available
        await peer.send(bytes.fromhex("53000000000000"))  # keep-alive: never answered
        await exchange(peer, MAX_TXID, MAX_TXID_REPLY)
        await exchange(tool, ADMIN_UNASSIGN, ADMIN_SUCCESS)


FOLDER = Path(__file__).resolve().parents[4] / "tests" / "interop" / "golden"


def recorded() -> list[dict[str, Any]]:
    plain = FOLDER / "sessions" / "server-storage.jsonl"
    if plain.exists():
        lines = plain.read_text().splitlines()
    else:
        lines = (
            gzip.decompress((FOLDER / "sessions" / "server-storage.jsonl.gz").read_bytes())
            .decode()
            .splitlines()
        )
    return [json.loads(line) for line in lines]


class Replay:
    """Sends what clients sent, in the recorded order, and checks what the node answers."""

    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection
        self._early: list[str] = []

    async def send(self, frame: str) -> None:
        await self._connection.send(bytes.fromhex(frame))

    async def expect(self, frame: str) -> None:
        while frame not in self._early:
            got = (await self._connection.frame()).hex()
            if frame[:2] == got[:2] == "41" and frame[14:16] == got[14:16] == "0c":
                got = frame  # a metrics reply: figures differ
            self._early.append(got)
            assert len(self._early) < 8, f"expected {frame}, got {self._early}"
        self._early.remove(frame)


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_recorded_sessions_of_0_13_2_get_the_same_answers(number: int, tmp_path: Path) -> None:
    """Every frame that servers and tools sent to one node in a day's recording, every reply byte for byte."""
    lines = recorded()
    key = next(UUID(bytes=bytes.fromhex(r["hex"])[28:44]) for r in lines if r.get("name") == "OPEN_REQUEST")
    threshold = 1024 if number == 1 else 1_000_000_000
    compared = 0
    async with (
        running_node(tmp_path, key=key, threshold=threshold, assign=(0, 1, 2, 3)) as node,
        AsyncExitStack() as stack,
    ):
        replays: dict[tuple[str, int], Replay] = {}
        for line in lines:
            if line.get("phase") == "interop" and FOLDER is not None and number < 2:
                compare_with_recorded_directory(tmp_path, FOLDER / "storage" / f"node{number}")
            if (
                "hex" not in line
                or line["link"] not in (f"s{number}", f"a{number}")
                or line["name"] == "HELLO"
            ):
                continue
            at = (line["link"], line["conn"])
            if at not in replays:
                admin = line["link"].startswith("a")
                replays[at] = Replay(await stack.enter_async_context(raw_connection(node, admin=admin)))
            if line["dir"] == "c2s":
                await replays[at].send(line["hex"])
            else:
                await replays[at].expect(line["hex"])
                compared += 1
    assert compared > 100
    assert inspect_directory(str(tmp_path)).problems == []


def compare_with_recorded_directory(ours: Path, theirs: Path) -> None:
    """Equal but for creation times, our sidecars and our witness."""
    names = sorted(str(p.relative_to(theirs)) for p in theirs.rglob("*") if p.is_file())
    assert [
        n
        for n in sorted(str(p.relative_to(ours)) for p in ours.rglob("*") if p.is_file())
        if "fence" not in n and "witness" not in n
    ] == names
    for name in names:
        mine, golden = (ours / name).read_bytes(), (theirs / name).read_bytes()
        assert mine[:4] + mine[12:] == golden[:4] + golden[12:], name


@pytest.mark.parametrize("name", ["node0", "node1"])
async def test_recorded_directory_is_served(name: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(FOLDER / "storage" / name, data, copy_function=shutil.copyfile)
    for directory in data.iterdir():
        if directory.is_dir():
            directory.chmod(0o755)
    key = inspect_directory(str(data)).header.cluster_key
    assert key != KEY
    wanted = json.loads((FOLDER / "storage" / "transactions.json").read_text())
    async with running_node(data, key=key, threshold=1024 if name == "node1" else 1_000_000_000) as node:
        assert node.health()[0] is True
        for partition_id in range(4):
            listed = [t for t in wanted if t["partition"] == partition_id]
            assert node.manager.get(partition_id).max_txid == listed[-1]["txId"]
