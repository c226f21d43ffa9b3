"""docs/compatibility-commands.md lists every tool, sub-command and option of release 0.13.2 with ours and the
test that runs it.

The tools of 0.13.2 are listed apart from the code, so that one that gets lost is noticed. Each row is held
against the command as it is and against the text of its test: the test must name the sub-command and every
spelling of every option.
"""

import ast
import re
from dataclasses import dataclass
from functools import cache

import pytest

from tests.repo.command_tree import commands
from tests.repo.files import ROOT

DOCUMENT = ROOT / "docs" / "compatibility-commands.md"
TESTS = ROOT / "tests" / "integration" / "cli"

CONFIG = "-c/--cli-config-path"
LOGGER = "-l/--logger-as-output"
NODE, PARTITION = "-s/--storage", "-p/--partition"
GROUPS = {
    "ZooKeeperCli": "zk",
    "StorageCli": "storage",
    "ServerCli": "server",
    "ClusterCli": "cluster",
    "DiskCli": "disk",
    "ClientCli": "client",
    "PerformanceCli": "perf",
}
OF_0_13_2: dict[str, dict[str, set[str]]] = {
    "ZooKeeperCli": {
        "create": {CONFIG, "-n/--name", "-p/--partitions"},
        "delete": {CONFIG, "-n/--name", "-f/--force"},
        "list": {CONFIG, LOGGER},
        "show-cluster-key": {CONFIG},
        "add-storage-node": {CONFIG, NODE, "-a/--storage-admin-port", "-g/--group"},
        "remove-storage-node": {CONFIG, NODE},
        "assign-partition": {CONFIG, PARTITION, NODE},
        "unassign-partition": {CONFIG, PARTITION, NODE},
        "auto-assign": {CONFIG, "-g/--group"},
    },
    "StorageCli": {
        "list": {CONFIG, NODE, LOGGER},
        "add-partition": {NODE, PARTITION, CONFIG},
        "remove-partition": {NODE, PARTITION, CONFIG, "-d/--delete-storage-files"},
        "availability": {NODE, PARTITION, "-o/--online", CONFIG},
        "recover-partition": {
            "-s/--source-storage", "-d/--destination-storage", "-dp/--destination-storage-port", PARTITION,
            "-b/--batch-size", CONFIG, "-sssl/--source-ssl-config-path", "-dssl/--destination-ssl-config-path",
        },
        "sync-partitions": {CONFIG},
        "validate": {CONFIG},
        "max-transaction-id": {NODE, "-sp/--storage-port", PARTITION, CONFIG, "-o/--offline"},
    },
    "ServerCli": {
        "list": {"-s/--server", LOGGER},
        "add-preferred-partition": {"-s/--server", PARTITION, CONFIG},
        "remove-preferred-partition": {"-s/--server", PARTITION, CONFIG},
    },
    "ClusterCli": {
        "check-connectivity": {CONFIG},
        "verify": {CONFIG, PARTITION, "-t/--timeout", LOGGER},
    },
    "DiskCli": {
        "dump-control-file": {PARTITION, "-a/--assigned"},
        "dump-segment": {"-m/--metadata", "-r/--record", "-t/--transaction", "-d/--deserializer"},
        "verify-segment": {"-t/--transaction"},
        "segment-statistic": set(),
    },
    "ClientCli": {
        "validate": {
            "-tpc/--txn-per-client", "-nc/--num-clients", "-i/--interval", CONFIG, "-ap/--num-active-partitions",
        },
        "create-producer": {"-tpc/--txn-per-client", "-i/--interval", CONFIG, "-ap/--num-active-partitions"},
        "create-consumer": {"-tpc/--txn-per-client", CONFIG, "-ap/--num-active-partitions"},
        "high-water-mark": {PARTITION, CONFIG},
    },
    "PerformanceCli": {
        "test-producers": {
            "-s/--txn-size", "-p/--txn-per-thread", "-t/--num-thread", "-i/--interval", CONFIG, "-ap",
            "-l/--lock-pool-size", "-ml/--mount_from_latest",
        },
        "test-consumers": {"-s/--txn-size", "-t/--num-txn", CONFIG, "-ap", "-ml/--mount_from_latest"},
    },
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    tool: str
    command: str
    options: frozenset[str]
    ours: str
    tests: tuple[str, ...]


def _rows() -> list[Row]:
    rows = []
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        match = re.match(r"`(\w+Cli) ([a-z-]+)`", cells[0]) if len(cells) == 5 else None
        if match is None:
            continue
        options = frozenset(re.findall(r"`(-[^`]+)`", cells[1]))
        ours = re.findall(r"`waltz ([^`]+)`", cells[2])
        rows.append(Row(match[1], match[2], options, ours[0], tuple(re.findall(r"`(test_\w+)`", cells[4]))))
    return rows


@cache
def _sources() -> dict[str, str]:
    """The text of each test against a live cluster."""
    found: dict[str, str] = {}
    for path in TESTS.glob("test_*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found[node.name] = ast.get_source_segment(text, node) or ""
    return found


def _strings(name: str) -> set[str]:
    return {
        node.value
        for node in ast.walk(ast.parse(_sources()[name]))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_the_table_lists_every_sub_command_and_option() -> None:
    listed = {(row.tool, row.command): row.options for row in _rows()}
    wanted = {
        (tool, command): frozenset(options)
        for tool, found in OF_0_13_2.items()
        for command, options in found.items()
    }
    assert listed == wanted


@pytest.mark.parametrize("row", _rows(), ids=lambda row: f"{row.tool}-{row.command}")
def test_a_row_is_true(row: Row) -> None:
    assert row.ours == f"{GROUPS[row.tool]} {row.command}"
    known = commands()[row.ours]
    spellings = {spelling for option in row.options for spelling in option.split("/")}
    assert spellings <= known, f"`waltz {row.ours}` has no {sorted(spellings - known)}"
    assert row.tests, f"{row.ours} has no test"
    for name in row.tests:
        assert name in _sources(), f"there is no {name} in {TESTS.relative_to(ROOT)}"
    said = set().union(*(_strings(name) for name in row.tests))
    assert {GROUPS[row.tool], row.command} <= said
    assert spellings <= said, f"no test of the row says {sorted(spellings - said)}"


PASSES_ON = {"k8s shell", "k8s console"}
"""Prints what the command prints that it runs."""


@pytest.mark.parametrize("command", sorted({*commands()} - PASSES_ON))
def test_every_command_can_answer_in_json(command: str) -> None:
    assert "--output" in commands()[command]
