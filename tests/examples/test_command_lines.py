"""How the examples are started, and what is wrong with it, in one line."""

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
    with pytest.raises(SystemExit) as ended:
        config.of_command_line()
    assert words in str(ended.value.code)
    assert len(str(ended.value.code).splitlines()) == 1


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
