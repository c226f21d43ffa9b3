"""The table at the end of a run."""

from tests.integration.nemesis.plan import Kind
from tests.integration.nemesis.run import Result


def table(result: Result, seed: int, seconds: float) -> str:
    """Counts of faults and connections, what became of the writes, and what is wrong."""
    rows: list[tuple[str, object]] = [
        ("seed", seed),
        ("seconds", f"{seconds:.0f}"),
        ("rounds", result.rounds),
        *((f"fault: {kind}", result.faults.get(kind, 0)) for kind in Kind),
        ("faults in all", sum(result.faults.values())),
        *((f"connections: {_kind(a)} to {_kind(b)}", count) for (a, b), count in _by_kind(result).items()),
        ("processes that ended on their own with one line", result.restarted),
        *((f"administrator's verify: {name}", count) for name, count in sorted(result.verified.items())),
        ("writes acknowledged", f"{result.acknowledged:,}"),
        ("writes failed", f"{result.failed:,}"),
        ("writes with unknown outcome", f"{result.undecided:,}"),
        *((f"  {name}", f"{count:,}") for name, count in sorted(result.failures.items())),
        ("acknowledged writes lost", result.lost),
        ("records on each replica, all equal", f"{result.records:,}"),
        ("longest write gap of a partition", f"{result.longest_gap_seconds:.1f} s"),
        ("longest time from healing to all well", f"{result.longest_recovery_seconds:.1f} s"),
        ("violations", len(result.violations)),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows)


def _by_kind(result: Result) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for (source, target), count in sorted(result.pairs.items()):
        pair = (_kind(source), _kind(target))
        found[pair] = found.get(pair, 0) + count
    return found


def _kind(role: str) -> str:
    kind = role.partition("-")[0]
    return kind if kind in ("storage", "server", "zookeeper", "admin", "unknown") else "client"
