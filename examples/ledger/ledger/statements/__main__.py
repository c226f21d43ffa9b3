"""`python -m ledger.statements CONFIG.yaml`"""

from __future__ import annotations

import asyncio
import sys

from aiohttp import web

from ledger.events import HEADERS
from ledger.service import Config, http_server, open_database, stopped
from ledger.statements.store import METADATA, Store, apply
from waltz_client import WaltzClient
from waltz_client.sql import SqlApplier


def routes(store: Store) -> web.RouteTableDef:
    """What the service answers."""
    table = web.RouteTableDef()

    @table.get("/books/{book}")
    async def summary(request: web.Request) -> web.Response:
        found = await asyncio.to_thread(store.summary, request.match_info["book"])
        if found is None:
            return web.json_response({"error": "no such book"}, status=404)
        return web.json_response(found)

    @table.get("/books/{book}/accounts/{account}")
    async def statement(request: web.Request) -> web.Response:
        where = request.match_info
        return web.json_response(await asyncio.to_thread(store.statement, where["book"], where["account"]))

    return table


async def main(config: Config) -> None:
    """Follow the log in a feed per partition, answer questions."""
    engine = open_database(config.database)
    METADATA.create_all(engine)
    async with (
        SqlApplier(engine, apply, where=HEADERS.owns) as applier,
        WaltzClient.connect(config.client) as client,
    ):
        await applier.create_tables()
        async with http_server(routes(Store(engine)), config.port), asyncio.TaskGroup() as group:
            following = group.create_task(applier.run(client))
            await stopped()
            following.cancel()
    engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(Config.load(sys.argv[1])))
