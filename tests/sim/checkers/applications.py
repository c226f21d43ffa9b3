"""What the applications promise their users, replayed from the final log: each transaction says what its
writer saw."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.sim.checkers.history import Truth
from tests.sim.checkers.payload import Payload, decode
from tests.sim.checkers.violation import Violation

Entry = tuple[int, Payload]
"""Transaction id and payload."""

START_BALANCE = 100
EMPTY_REGISTER = -1


def check_applications(truth: Truth) -> list[Violation]:
    """`bank`, `registers`, `counters` and `duty` (write skew), each partition for itself."""
    checks: dict[str, Callable[[Iterable[Entry]], list[str]]] = {
        "bank": check_bank,
        "registers": check_registers,
        "counters": check_counters,
        "duty": check_duty,
    }
    found = []
    for partition, records in truth.log.items():
        entries: dict[str, list[Entry]] = {}
        for record in records:
            payload = decode(record.data)
            if payload is not None and payload.workload in checks:
                entries.setdefault(payload.workload, []).append((record.transaction_id, payload))
        for workload, written in entries.items():
            found += [
                Violation(workload, f"partition {partition}: {text}") for text in checks[workload](written)
            ]
    return found


def check_bank(entries: Iterable[Entry]) -> list[str]:
    """No overdraft, balances as the teller saw them, and the total is constant."""
    found = []
    balances: dict[int, int] = {}
    for transaction_id, (_, _, body) in entries:
        source, target, amount = body["from"], body["to"], body["amount"]
        had = balances.get(source, START_BALANCE), balances.get(target, START_BALANCE)
        if had != (body["from_had"], body["to_had"]):
            found.append(
                f"transaction {transaction_id}: accounts {source} and {target} had {had}, not as in {body}"
            )
        # Both from what the teller saw, as an application that stores balances does: a lost update changes
        # the total.
        balances[source], balances[target] = body["from_had"] - amount, body["to_had"] + amount
        if balances[source] < 0:
            found.append(f"transaction {transaction_id}: account {source} is overdrawn: {balances[source]}")
    if sum(balances.values()) != START_BALANCE * len(balances) and not found:
        found.append(f"the total of {len(balances)} accounts is {sum(balances.values())}")
    return found


def check_registers(entries: Iterable[Entry]) -> list[str]:
    """Each set and look saw what the set before left."""
    found = []
    values: dict[int, int] = {}
    for transaction_id, (uid, _, body) in entries:
        seen = [(body["register"], body["old"] if "old" in body else body["saw"])]
        if "other" in body:
            seen.append((body["other"], body["other_saw"]))
        for register, value in seen:
            there = values.get(register, EMPTY_REGISTER)
            if value != there:
                found.append(
                    f"transaction {transaction_id}: register {register} holds {there}, the writer saw {value}"
                )
        if "old" in body:
            values[body["register"]] = uid
    return found


def check_counters(entries: Iterable[Entry]) -> list[str]:
    """Each seal has the sum of all additions before it."""
    found = []
    sums: dict[int, int] = {}
    for transaction_id, (_, _, body) in entries:
        counter = body["counter"]
        if "add" in body:
            sums[counter] = sums.get(counter, 0) + body["add"]
        elif body["sum"] != sums.get(counter, 0):
            found.append(
                f"transaction {transaction_id}: counter {counter} is {sums.get(counter, 0)}, sealed as {body['sum']}"
            )
    return found


def check_duty(entries: Iterable[Entry]) -> list[str]:
    """Of each pair one is on duty; each change saw the other as it is."""
    found = []
    pairs: dict[int, list[bool]] = {}
    for transaction_id, (_, _, body) in entries:
        pair = pairs.setdefault(body["pair"], [True, True])
        who = body["who"]
        if pair[1 - who] != body["other_was"]:
            found.append(
                f"transaction {transaction_id}: pair {body['pair']} is {pair}, side {who} saw {body['other_was']}"
            )
        pair[who] = body["on"]
        if not any(pair):
            found.append(f"transaction {transaction_id}: nobody of pair {body['pair']} is on duty")
    return found
