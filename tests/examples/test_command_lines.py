"""How the examples are started, and what is wrong with it, in one line."""

import socket
import sys
from pathlib import Path

import pytest
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
