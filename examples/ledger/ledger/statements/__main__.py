"""`python -m ledger.statements CONFIG.yaml`"""

from __future__ import annotations

import asyncio

from aiohttp import web

from ledger.events import HEADERS
from ledger.service import Config, http_server, open_async_database, stopped
from ledger.statements.store import METADATA, Store, apply
from waltz_client import WaltzClient, WaltzClientError
from waltz_client.sql import SqlApplier


def routes(store: Store, applier: SqlApplier, client: WaltzClient) -> web.RouteTableDef:
    """What the service answers."""
    table = web.RouteTableDef()

    @table.get("/books/{book}")
    async def summary(request: web.Request) -> web.Response:
        found = await store.summary(request.match_info["book"])
        if found is None:
            return web.json_response({"error": "no such book"}, status=404)
        return web.json_response(found)

    @table.get("/books/{book}/accounts/{account}")
    async def statement(request: web.Request) -> web.Response:
        where = request.match_info
        return web.json_response(await store.statement(where["book"], where["account"]))

    @table.get("/health")
    async def health(_: web.Request) -> web.Response:
        try:
            lags = await applier.lag(client)
        except WaltzClientError as error:
            return web.json_response({"error": str(error)}, status=503)
        report: dict[int, str] = {partition: f"{lag} transactions behind" for partition, lag in lags.items()}
        report |= {partition: str(error) for partition, error in applier.stopped.items()}
        return web.json_response(report, status=503 if applier.stopped else 200)

    return table


async def main(config: Config) -> None:
    """Follow the log in a feed per partition, answer questions."""
    async with open_async_database(config.database) as engine:
        async with engine.begin() as connection:
            await connection.run_sync(METADATA.create_all)
        async with (
            SqlApplier(engine, apply, where=HEADERS.owns) as applier,
            WaltzClient.connect(config.client) as client,
        ):
            await applier.create_tables()
            async with (
                http_server(routes(Store(engine), applier, client), config.port),
                asyncio.TaskGroup() as group,
            ):
                following = group.create_task(applier.run(client))
                await stopped()
                following.cancel()


if __name__ == "__main__":
    with Config.of_command_line() as config:
        asyncio.run(main(config))
