"""Configuration, and what one instance is made of."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated

import sqlalchemy as sa
import yaml
from aiohttp import web
from prometheus_client import CollectorRegistry
from pydantic import Field, ValidationError
from pydantic.dataclasses import dataclass
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from inventory.api import names_in_path, routes
from inventory.clerk import Clerk
from inventory.clock import keep_time
from inventory.events import HEADERS
from inventory.store import METADATA, Store, apply
from waltz_client import WaltzClient, WaltzClientError
from waltz_client.prometheus import PrometheusObserver
from waltz_client.sql import SqlCallbacks

DRAIN_SECONDS = 10.0
"""How long a stop waits for decisions that are on their way."""


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, config={"extra": "forbid"})
class Config:
    """A YAML file: `client` (path of the log's client configuration, relative to the file), `database` (an
    SQLAlchemy address), `port` (HTTP, on the loopback address); how long a reservation lasts, `hold_ticks` of
    at least `tick_seconds` each; and `deadline_seconds` for each wait of a request for the log (at most
    three).

    The values are checked and converted: `hold_ticks` goes into events, and a text in its place would stop
    every instance for good.
    """

    client: Path | dict[str, object]
    database: str
    port: Annotated[int, Field(ge=0, le=65_535)] = 0
    tick_seconds: Seconds = 10.0
    hold_ticks: Annotated[int, Field(ge=1, le=10**9)] = 90
    deadline_seconds: Seconds = 15.0

    @classmethod
    def load(cls, path: str) -> Config:
        """Read the file. OSError, YAMLError; KeyError, TypeError, ValueError for what it holds."""
        keys = yaml.safe_load(Path(path).read_text())
        return cls(**{**keys, "client": Path(path).parent / keys["client"]})

    @classmethod
    @contextmanager
    def of_command_line(cls) -> Iterator[Config]:
        """The file that the command line names. What is wrong with it ends the program with one line, and so
        do a log and a database that cannot be used, while inside."""
        if len(sys.argv) != 2:
            sys.exit("usage: python -m inventory CONFIG.yaml")
        file = sys.argv[1]
        failed: BaseException | None = None
        try:
            config = cls.load(file)
        except ValidationError as error:
            problem = "; ".join(f"{one['loc'][0]}: {one['msg']}" for one in error.errors())
            sys.exit(f"{file} cannot be used: {problem}")
        except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
            sys.exit(f"{file} cannot be used: {_one_line(error)}")
        try:
            yield config
        except* (WaltzClientError, SQLAlchemyError, ModuleNotFoundError, OSError) as group:
            failed = group
        if failed:
            sys.exit(f"the client or the database of {file} cannot be used: {_one_line(failed)}")


def _one_line(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


@contextmanager
def open_database(url: str) -> Iterator[sa.Engine]:
    """An engine. In SQLite, readers and the writer do not wait for each other."""
    engine = sa.create_engine(url)
    if engine.dialect.is_async:
        raise ArgumentError(f"{engine.url.drivername} is a driver for the event loop: take another one")
    try:
        if engine.dialect.name == "sqlite":
            with engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        yield engine
    finally:
        engine.dispose()


def application(routes: web.RouteTableDef) -> web.Application:
    """What answers with these routes, where the names in a path are some."""
    app = web.Application(middlewares=[names_in_path])
    app.add_routes(routes)
    return app


@asynccontextmanager
async def instance(config: Config) -> AsyncIterator[web.Application]:
    """Follow the log, keep time, and answer what is asked of the application."""
    with open_database(config.database) as engine:
        METADATA.create_all(engine)
        store, registry = Store(engine), CollectorRegistry()
        observer = PrometheusObserver(registry)
        async with SqlCallbacks(engine, apply, where=HEADERS.owns) as callbacks:
            await callbacks.create_tables()
            async with WaltzClient.connect(config.client, callbacks, observers=[observer]) as client:
                observer.watch(client, "inventory")
                clerk = Clerk(client, callbacks, store, config.hold_ticks, config.deadline_seconds)
                app = application(routes(clerk, client, callbacks, registry))
                async with asyncio.TaskGroup() as group:
                    clocks = [
                        group.create_task(keep_time(clerk, store, partition, config.tick_seconds))
                        for partition in range(client.num_partitions)
                    ]
                    try:
                        yield app
                    finally:
                        for clock in clocks:
                            clock.cancel()
                await client.close(drain_seconds=DRAIN_SECONDS)
