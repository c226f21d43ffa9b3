"""What the load writes: JSON with a name that is unique over all writers and all times, and what the writer
believed.

The checker replays these; it knows nothing else about the writers.
"""

import json
from dataclasses import dataclass
from typing import Any

ACCOUNTS = 8
OPENING_BALANCE = 100
COUNTERS = 4


@dataclass(frozen=True)
class Payload:
    """`kind`: transfer, audit, increment, count, blind. `body`: what the kind needs."""

    name: str
    kind: str
    body: dict[str, Any]

    def encode(self, size_bytes: int = 0) -> bytes:
        """At least `size_bytes` long."""
        data = json.dumps({"name": self.name, "kind": self.kind, **self.body}).encode()
        return data + b" " * (size_bytes - len(data))


def decode(data: bytes) -> Payload:
    """ValueError when it is no payload of ours."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return Payload(value.pop("name"), value.pop("kind"), value)


class Replica:
    """The state that the transactions of one partition build, applied in order of their ids."""

    def __init__(self) -> None:
        self.balances = [OPENING_BALANCE] * ACCOUNTS
        self.counts = [0] * COUNTERS
        self.applied = -1

    def apply(self, transaction_id: int, payload: Payload) -> None:
        body = payload.body
        if payload.kind == "transfer":
            self.balances[body["from"]] -= body["amount"]
            self.balances[body["to"]] += body["amount"]
        elif payload.kind == "increment":
            self.counts[body["counter"]] += 1
        self.applied = transaction_id
