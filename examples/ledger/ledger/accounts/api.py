"""The HTTP face. 201 done, 400 makes no sense, 409 refused, 503 ask again with the same id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from ledger.accounts.store import Store
from ledger.accounts.transfers import carry_out, opening, transferring
from ledger.events import Opened, Transfer
from waltz_client import WaltzClient, WaltzClientError
from waltz_client.sql import SqlCallbacks


def routes(client: WaltzClient, callbacks: SqlCallbacks, store: Store) -> web.RouteTableDef:
    """What the service answers."""
    table = web.RouteTableDef()

    @table.post("/books/{book}/accounts")
    async def open_account(request: web.Request) -> web.Response:
        return await _carry_out(request, opening)

    @table.post("/books/{book}/transfers")
    async def transfer(request: web.Request) -> web.Response:
        return await _carry_out(request, transferring)

    async def _carry_out(
        request: web.Request, make_wish: Callable[[str, dict[str, object]], Opened | Transfer]
    ) -> web.Response:
        try:
            wish = make_wish(request.match_info["book"], await request.json())
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)
        try:
            answer = await carry_out(client, store, wish)
        except WaltzClientError as error:
            return web.json_response({"error": str(error)}, status=503)
        return web.json_response({"answer": answer.text}, status=201 if answer.done else 409)

    @table.get("/health")
    async def health(_: web.Request) -> web.Response:
        partitions, stopped = client.status().partitions, callbacks.stopped
        report = {p.partition: p.reason or f"{p.lag} transactions behind" for p in partitions}
        report |= {partition: str(error) for partition, error in stopped.items()}
        good = all(p.available for p in partitions) and not stopped
        return web.json_response(report, status=200 if good else 503)

    @table.get("/books/{book}")
    async def balances(request: web.Request) -> web.Response:
        return web.json_response(await asyncio.to_thread(store.balances, request.match_info["book"]))

    return table
