"""The HTTP face. 200 or 201 done, 400 makes no sense, 404 unknown id, 409 refused, 503 ask again with the
same id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from inventory.clerk import Clerk, OtherContentError, UnknownIdError
from inventory.events import Pieces
from inventory.store import RESERVED, Entry
from waltz_client import WaltzClient, WaltzClientError
from waltz_client.sql import SqlCallbacks

LONGEST_NAME = 64
MOST_PIECES = 10**9
"""In one request: what is in the log must fit the tables of every instance, for good. Stock has 64 bits,
which is the sum of nine billion of the largest deliveries."""


def routes(
    clerk: Clerk, client: WaltzClient, callbacks: SqlCallbacks, registry: CollectorRegistry
) -> web.RouteTableDef:
    """What an instance answers."""
    table = web.RouteTableDef()

    @table.post("/warehouses/{warehouse}/deliveries")
    async def deliver(request: web.Request) -> web.Response:
        return await _send(request, clerk.deliver)

    @table.post("/warehouses/{warehouse}/orders")
    async def reserve(request: web.Request) -> web.Response:
        return await _send(request, clerk.reserve)

    @table.post("/warehouses/{warehouse}/orders/{id}/ship")
    async def ship(request: web.Request) -> web.Response:
        return await _answer(clerk.ship(**request.match_info), ("shipped",))

    @table.post("/warehouses/{warehouse}/orders/{id}/cancel")
    async def cancel(request: web.Request) -> web.Response:
        return await _answer(clerk.cancel(**request.match_info), ("cancelled",))

    @table.get("/warehouses/{warehouse}/orders/{id}")
    async def entry(request: web.Request) -> web.Response:
        return await _answer(clerk.entry(**request.match_info))

    @table.get("/warehouses/{warehouse}/items/{item}")
    async def stock(request: web.Request) -> web.Response:
        try:
            found = await clerk.stock(**request.match_info)
        except WaltzClientError as error:
            return _error(503, error)
        return web.json_response(found._asdict() | {"available": found.on_hand - found.reserved})

    @table.get("/health")
    async def health(_: web.Request) -> web.Response:
        partitions, stopped = client.status().partitions, callbacks.stopped
        report = {p.partition: p.reason or f"{p.lag} transactions behind" for p in partitions}
        report |= {partition: str(error) for partition, error in stopped.items()}
        good = all(p.available for p in partitions) and not stopped
        return web.json_response(report, status=200 if good else 503)

    @table.get("/metrics")
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return table


async def _send(request: web.Request, send: Callable[[Pieces], Awaitable[Entry]]) -> web.Response:
    try:
        wish = pieces(request.match_info["warehouse"], await request.json())
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        return _error(400, error)
    return await _answer(send(wish), ("delivered", RESERVED, "shipped"), 201)


async def _answer(
    asked: Awaitable[Entry], good: tuple[str, ...] | None = None, status: int = 200
) -> web.Response:
    """`good`: the states that are what was asked for; None for all."""
    try:
        found = await asked
    except UnknownIdError as error:
        return _error(404, error)
    except OtherContentError as error:
        return _error(409, error)
    except WaltzClientError as error:
        return _error(503, error)
    body = {"id": found.pieces.id, "item": found.pieces.item, "quantity": found.pieces.quantity}
    done = good is None or found.state in good
    return web.json_response(body | {"state": found.state}, status=status if done else 409)


def _error(status: int, error: Exception) -> web.Response:
    return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=status)


def pieces(warehouse: str, body: dict[str, object]) -> Pieces:
    """The wish of a request; KeyError or ValueError for one that makes no sense."""
    quantity = int(str(body["quantity"]))
    id, item = str(body["id"]), str(body["item"])
    _check_names(warehouse, id, item)
    if not 0 < quantity <= MOST_PIECES:
        raise ValueError(f"1 to {MOST_PIECES} pieces")
    return Pieces(warehouse, id, item, quantity)


def _check_names(*names: str) -> None:
    """ValueError. Not printable are NUL, which PostgreSQL does not store or compare with, and halves of
    surrogate pairs, which are no text."""
    if not all(0 < len(name) <= LONGEST_NAME and name.isprintable() for name in names):
        raise ValueError(f"names have 1 to {LONGEST_NAME} printable characters")


@web.middleware
async def names_in_path(request: web.Request, handler: Handler) -> web.StreamResponse:
    """400 for a path with a name that no database takes, whatever the route."""
    try:
        _check_names(*request.match_info.values())
    except ValueError as error:
        return _error(400, error)
    return await handler(request)
