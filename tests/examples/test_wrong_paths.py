"""A name in a path that no database takes is answered with status 400 by every route of the examples, before
anything is asked."""

from typing import Never

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

import inventory.api
import ledger.accounts.api
from inventory.service import application as inventory_application
from ledger.branch.app import create_app
from ledger.service import application as ledger_application
from ledger.statements.__main__ import routes as statement_routes

WRONG = ["%00", "a%00b", "%0A", "n" * 65]


class Untouchable:
    """What must not be asked."""

    def __getattr__(self, name: str) -> Never:
        raise AssertionError(name)


class Clerk:
    """Answers nothing; its methods are looked up before a request."""

    async def _refuse(self, **_: str) -> Never:
        raise AssertionError("a name that no database takes")

    deliver = reserve = ship = cancel = entry = stock = _refuse


ANY = Untouchable()
ACCOUNTS = ledger_application(ledger.accounts.api.routes(ANY, ANY, ANY))  # type: ignore[arg-type]
STATEMENTS = ledger_application(statement_routes(ANY, ANY, ANY))  # type: ignore[arg-type]
INVENTORY = inventory_application(inventory.api.routes(Clerk(), ANY, ANY, ANY))  # type: ignore[arg-type]


def routes_with_names(app: web.Application) -> list[tuple[str, str]]:
    found = {(one.method, str(one.resource and one.resource.canonical)) for one in app.router.routes()}
    return sorted((method, path) for method, path in found if "{" in path and method != "HEAD")


def paths(pattern: str) -> list[str]:
    """Each wrong name at each of the pattern's places, with a right one at the others."""
    pieces = pattern.split("/")
    places = [place for place, piece in enumerate(pieces) if piece[:1] in ("{", "<")]
    made = []
    for wrong_place in places:
        for wrong in WRONG:
            names = {place: wrong if place == wrong_place else "good" for place in places}
            made.append("/".join(names.get(place, piece) for place, piece in enumerate(pieces)))
    return made


@pytest.mark.parametrize(("app", "count"), [(ACCOUNTS, 3), (STATEMENTS, 2), (INVENTORY, 6)])
async def test_with_aiohttp(app: web.Application, count: int) -> None:
    found = routes_with_names(app)
    assert len(found) == count
    async with TestClient(TestServer(app)) as http:
        for method, pattern in found:
            for path in paths(pattern):
                url = URL(path, encoded=True)
                answer = await http.request(method, url, data=b'{"id": "a", "item": "b", "quantity": 1}')
                assert answer.status == 400, (method, path)
                assert "1 to 64 printable characters" in (await answer.json())["error"]


def test_with_flask() -> None:
    app = create_app(ANY, ANY)  # type: ignore[arg-type]
    http = app.test_client()
    found = [rule for rule in app.url_map.iter_rules() if rule.arguments and rule.endpoint != "static"]
    assert len(found) == 2
    for rule in found:
        (method,) = (rule.methods or set()) & {"GET", "POST"}
        for path in paths(rule.rule):
            body = [{"account": "a", "balance": 1}]
            answer = http.open(path, method=method, json=body if method == "POST" else None)
            assert answer.status_code == 400, (method, path)
            assert "1 to 64 printable characters" in (answer.json or {})["error"]
