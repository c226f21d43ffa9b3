"""Reads the recordings of release 0.13.2 (see golden/README.md)."""

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from waltz_protocol.codec import NEWEST_OF_0_13_2
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.handshake import decode_hello, encode_hello

GOLDEN = Path(__file__).parent / "golden"
SESSIONS = ("client-workload", "client-admin-cli", "client-raw-all-versions", "server-storage")


@dataclass(frozen=True)
class RecordedFrame:
    """One frame of a recorded connection. `link` names the listening side, `conn` the connection."""

    at: float
    link: str
    conn: int
    from_client: bool
    magic: str
    version: int
    type: int | None
    name: str
    raw: bytes

    @property
    def body(self) -> bytes:
        return self.raw[7:]


@cache
def lines(session: str) -> tuple[dict[str, Any], ...]:
    with gzip.open(GOLDEN / "sessions" / f"{session}.jsonl.gz", "rt") as source:
        return tuple(json.loads(line) for line in source)


def frame_of(line: Mapping[str, Any]) -> RecordedFrame:
    """The frame of a line that has one."""
    return RecordedFrame(
        line["t"],
        line["link"],
        line["conn"],
        line["dir"] == "c2s",
        line["magic"],
        line["ver"],
        line.get("type"),
        line["name"],
        bytes.fromhex(line["hex"]),
    )


def frames(session: str) -> Iterator[RecordedFrame]:
    """All frames of a session in the order of their recording."""
    for line in lines(session):
        if "hex" in line:
            yield frame_of(line)


def zookeeper_tree(stage: str) -> dict[str, dict[str, Any]]:
    tree: dict[str, dict[str, Any]] = json.loads((GOLDEN / "zk" / f"{stage}.json").read_text())
    return tree


def transactions() -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads((GOLDEN / "storage" / "transactions.json").read_text())
    return listed


def with_versions_of_0_13_2(hello: bytes, newest: int = NEWEST_OF_0_13_2) -> bytes:
    """A Hello of ours without the versions that only we speak; one of 0.13.2 is what it was. `newest`: the
    newest version of the protocol that 0.13.2 speaks."""
    said = decode_hello(hello[FRAME_HEADER_SIZE:])
    assert set(range(newest + 1)) <= set(said.versions) or said.versions[-1] <= newest
    return encode_hello([v for v in said.versions if v <= newest], said.text)
