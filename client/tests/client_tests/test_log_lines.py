"""Every log line of the client: a sentence, and as fields what it is about."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import waltz_client
from waltz_client._internal.append.transaction_monitor import Cause
from waltz_client.testing import InProcessLog

SOURCES = sorted(Path(waltz_client.__file__).parent.rglob("*.py"))
LEVELS = {"log", "debug", "info", "warning", "error", "exception", "critical"}


def log_calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in LEVELS and ast.unparse(node.func.value) == "log":
            yield node


def test_every_line_has_fields_and_every_logger_the_name_of_its_module() -> None:
    found = 0
    for path in SOURCES:
        text = path.read_text()
        for call in log_calls(ast.parse(text)):
            found += 1
            assert "extra" in {keyword.arg for keyword in call.keywords}, f"{path}:{call.lineno}"
        assert text.count("getLogger(") == text.count("getLogger(__name__)"), path
    assert found > 20


async def test_a_line_about_a_partition_names_it_in_a_field(caplog: pytest.LogCaptureFixture) -> None:
    def raising(_: object) -> None:
        raise ValueError("a mistake of the application")

    log = InProcessLog(num_partitions=2)
    async with log.client() as client:
        await client.writable(1)
        handle = client.append_nowait(partition=1, data=b"x", on_done=raising)
        await client.flush_transactions()
    assert handle.cause is Cause.COMMITTED
    (record,) = [one for one in caplog.records if one.name.startswith("waltz_client")]
    assert vars(record)["partition"] == 1
    assert record.getMessage() == "partition 1: the on_done function of an append raised"
