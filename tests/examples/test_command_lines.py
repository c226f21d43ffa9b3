"""How the examples are started, and what is wrong with it, in one line."""

import runpy
import signal
import socket
import sys
from pathlib import Path

import pytest
import yaml
from aiohttp import web

import inventory.service
import ledger.service
from ledger.branch.app import create_app
from ledger.service import http_server
from waltz_client import ConnectError


@pytest.mark.parametrize("config", [inventory.service.Config, ledger.service.Config])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "usage: python -m "),
        ("", "absent.yaml cannot be used: FileNotFoundError: "),
        ("port: 8101", "wrong.yaml cannot be used: KeyError: 'client'"),
        ("client: a", "wrong.yaml cannot be used: database: "),
        ("- 1", "wrong.yaml cannot be used: TypeError: "),
        ("a: [", "wrong.yaml cannot be used: ParserError: "),
    ],
)
def test_a_wrong_command_line_is_one_line(
    config: type[ledger.service.Config],
    text: str | None,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "wrong.yaml").write_text(text or "")
    arguments = [] if text is None else [str(tmp_path / ("wrong.yaml" if text else "absent.yaml"))]
    monkeypatch.setattr(sys, "argv", ["__main__.py", *arguments])
    with pytest.raises(SystemExit) as ended, config.of_command_line():
        raise AssertionError("it starts")
    assert words in str(ended.value.code)
    assert len(str(ended.value.code).splitlines()) == 1


DRIVERS = {
    "ledger.accounts": ("sqlite", "sqlite+aiosqlite"),
    "ledger.branch": ("sqlite", "sqlite+aiosqlite"),
    "ledger.statements": ("sqlite+aiosqlite", "sqlite"),
    "inventory": ("sqlite", "sqlite+aiosqlite"),
}
"""What each service takes, and what it does not."""


@pytest.mark.parametrize("service", DRIVERS)
@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("client", "nowhere.yaml", "ConfigError: cannot read configuration file "),
        ("client", "wrong.yaml", "ConfigError: "),
        ("database", "nonsense", "ArgumentError: Could not parse "),
        ("database", "OTHER:///a.db", " driver"),
        ("database", "DRIVER:////nowhere/at/all.db", "OperationalError: "),
        ("database", "mysql://a/b", "ModuleNotFoundError: No module named 'MySQLdb'"),
    ],
)
def test_what_the_file_names_and_cannot_be_used_is_one_line(
    service: str, key: str, value: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, other = DRIVERS[service]
    if "DRIVER" in value and driver == "sqlite+aiosqlite":
        pytest.skip("its thread may end after the event loop, with a warning")
    keys = {"client": "client.yaml", "database": f"{driver}:///{tmp_path}/a.db", "port": 0}
    keys[key] = value.replace("DRIVER", driver).replace("OTHER", other)
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(keys))
    monkeypatch.setattr(sys, "argv", ["__main__.py", str(tmp_path / "wrong.yaml")])
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # those of the test stay
    monkeypatch.delitem(sys.modules, f"{service}.__main__", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(service, run_name="__main__")
    line = str(ended.value.code)
    assert words in line
    assert "wrong.yaml" in line
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize("config", [inventory.service.Config, ledger.service.Config])
def test_only_what_can_be_mended_in_the_file_or_around_the_service_is_one_line(
    config: type[ledger.service.Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "good.yaml").write_text("client: a\ndatabase: sqlite://\nport: 0")
    monkeypatch.setattr(sys, "argv", ["__main__.py", str(tmp_path / "good.yaml")])
    away = ConnectError("ZooKeeper at a:1\ndid not answer")
    line = "good.yaml cannot be used: ConnectError: ZooKeeper at a:1 did not answer"
    with pytest.raises(SystemExit, match=line), config.of_command_line():
        raise ExceptionGroup("of a task group", [ExceptionGroup("of another", [away])])
    with pytest.raises(SystemExit, match=r"good\.yaml cannot be used: OSError: "), config.of_command_line():
        raise OSError("the driver of a database has errors of the system as they are")
    with pytest.raises(ExceptionGroup), config.of_command_line():
        raise ExceptionGroup("of a task group", [KeyError("a bug"), away])
    with pytest.raises(KeyError, match="a bug"), config.of_command_line():
        raise KeyError("a bug")


@pytest.mark.parametrize("config", [inventory.service.Config, ledger.service.Config])
@pytest.mark.parametrize(
    ("key", "value"),
    [("port", -1), ("port", 65_536), ("port", "x"), ("port", 1.5), ("database", 7), ("tick_secnods", 1)],
)
def test_a_key_that_cannot_be_used_is_named(
    config: type[ledger.service.Config], key: str, value: object, tmp_path: Path
) -> None:
    keys = {"client": "client.yaml", "database": "sqlite://", "port": 8101, key: value}
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(keys))
    with pytest.raises(ValueError, match=key):
        config.load(str(tmp_path / "wrong.yaml"))


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("hold_ticks", ["x", 0, 1.5, 10**9 + 1, None]),
        ("tick_seconds", ["x", 0, -1, float("nan"), float("inf")]),
        ("deadline_seconds", ["x", 0, -1, float("nan"), float("inf")]),
    ],
)
def test_a_time_of_the_inventory_that_cannot_be_used_is_named(
    key: str, values: list[object], tmp_path: Path
) -> None:
    for value in values:
        keys = {"client": "client.yaml", "database": "sqlite://", key: value}
        (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(keys))
        with pytest.raises(ValueError, match=key):
            inventory.service.Config.load(str(tmp_path / "wrong.yaml"))


def test_what_goes_into_events_of_the_inventory_is_a_number(tmp_path: Path) -> None:
    """An event with a text in its place could be applied by no instance, and would stop all of them."""
    keys = {"client": "c.yaml", "database": "sqlite://", "hold_ticks": "30", "tick_seconds": "0.5"}
    (tmp_path / "quoted.yaml").write_text(yaml.safe_dump(keys))
    config = inventory.service.Config.load(str(tmp_path / "quoted.yaml"))
    assert (config.hold_ticks, config.tick_seconds) == (30, 0.5)
    assert config.client == tmp_path / "c.yaml"


async def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=f"port {port}: .*in use"):
            async with http_server(web.RouteTableDef(), port):
                raise AssertionError("it serves")


def test_accounts_that_are_no_objects_are_refused_with_a_sentence() -> None:
    answer = create_app(None, None).test_client().post("/books/USD/accounts", json=[1])  # type: ignore[arg-type]
    assert (answer.status_code, answer.get_json()) == (
        400,
        {"error": "the body is a list of accounts, each an object with account and balance"},
    )
