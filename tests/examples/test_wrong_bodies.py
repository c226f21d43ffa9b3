"""What makes no sense is answered with status 400 by every service of the examples, whatever it is."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

import inventory.api
import ledger.accounts.api
from ledger.branch.app import create_app

DEEP = b"[" * 100_000
"""More than Python's parser of JSON follows."""

WRONG = [DEEP, b"{", b"\xff", b'"text"', b"7", b"null", b"[]", b"{}"]


def bodies(text: str) -> list[bytes]:
    """Wrong ones, and an otherwise good one with names that no database of everybody takes."""
    return [*WRONG, *(text.replace("NAME", name).encode() for name in ("eve\\u0000x", "\\ud800", ""))]


async def statuses(routes: web.RouteTableDef, path: str, sent: list[bytes]) -> list[int]:
    app = web.Application()
    app.add_routes(routes)
    async with TestClient(TestServer(app)) as http:
        return [(await http.post(path, data=body)).status for body in sent]


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("accounts", '{"account": "NAME", "balance": 1}'),
        ("transfers", '{"id": "NAME", "from": "ann", "to": "bob", "amount": 1}'),
        ("transfers", '{"id": "t1", "from": "NAME", "to": "bob", "amount": 1}'),
    ],
)
async def test_accounts(what: str, text: str) -> None:
    routes = ledger.accounts.api.routes(None, None, None)  # type: ignore[arg-type]
    sent = bodies(text)
    assert await statuses(routes, f"/books/USD/{what}", sent) == [400] * len(sent)


@pytest.mark.parametrize("what", ["deliveries", "orders"])
@pytest.mark.parametrize(
    "text", ['{"id": "NAME", "item": "lamp", "quantity": 1}', '{"id": "a", "item": "NAME", "quantity": 1}']
)
async def test_inventory(what: str, text: str) -> None:
    class Clerk:
        deliver = reserve = None

    routes = inventory.api.routes(Clerk(), None, None, None)  # type: ignore[arg-type]
    sent = bodies(text)
    assert await statuses(routes, f"/warehouses/north/{what}", sent) == [400] * len(sent)


def test_branch() -> None:
    http = create_app(None, None).test_client()  # type: ignore[arg-type]
    sent = bodies('[{"account": "NAME", "balance": 1}]')
    assert [http.post("/books/USD/accounts", data=body).status_code for body in sent] == [400] * len(sent)
