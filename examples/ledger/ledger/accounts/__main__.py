"""`python -m ledger.accounts CONFIG.yaml`"""

from __future__ import annotations

import asyncio

from ledger.accounts.api import routes
from ledger.accounts.store import METADATA, Store, apply
from ledger.events import HEADERS
from ledger.service import Config, http_server, open_database, stopped
from waltz_client import WaltzClient
from waltz_client.sql import SqlCallbacks

DRAIN_SECONDS = 10.0
"""How long a stop waits for decisions that are on their way."""


async def main(config: Config) -> None:
    """Follow the log, take orders."""
    with open_database(config.database) as engine:
        METADATA.create_all(engine)
        async with SqlCallbacks(engine, apply, where=HEADERS.owns) as callbacks:
            await callbacks.create_tables()
            async with WaltzClient.connect(config.client, callbacks) as client:
                async with http_server(routes(client, callbacks, Store(engine)), config.port):
                    await stopped()
                await client.close(drain_seconds=DRAIN_SECONDS)


if __name__ == "__main__":
    with Config.of_command_line() as config:
        asyncio.run(main(config))
