"""What both services do alike: read the configuration, serve HTTP, stop on SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated

import sqlalchemy as sa
import yaml
from aiohttp import web
from pydantic import Field, ValidationError
from pydantic.dataclasses import dataclass
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from ledger.names import names_in_path
from waltz_client import WaltzClientError


@dataclass(frozen=True, config={"extra": "forbid"})
class Config:
    """A YAML file with three keys: `client` (path of the log's client configuration, relative to the file),
    `database` (an SQLAlchemy address), `port` (HTTP, on the loopback address)."""

    client: Path
    database: str
    port: Annotated[int, Field(ge=0, le=65_535)]

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
            sys.exit("usage: python -m ledger.SERVICE CONFIG.yaml")
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


@asynccontextmanager
async def open_async_database(url: str) -> AsyncIterator[AsyncEngine]:
    """The same with a driver for the event loop: `sqlite+aiosqlite://`, `postgresql+asyncpg://`."""
    engine = create_async_engine(url)
    try:
        if engine.dialect.name == "sqlite":
            async with engine.connect() as connection:
                await connection.exec_driver_sql("PRAGMA journal_mode=WAL")
        yield engine
    finally:
        await engine.dispose()


def application(routes: web.RouteTableDef) -> web.Application:
    """What answers with these routes, where the names in a path are some."""
    app = web.Application(middlewares=[names_in_path])
    app.add_routes(routes)
    return app


@asynccontextmanager
async def http_server(routes: web.RouteTableDef, port: int) -> AsyncIterator[None]:
    """Serve the routes while inside."""
    runner = web.AppRunner(application(routes), shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
        except OSError as error:
            sys.exit(f"port {port}: {error.strerror}")
        yield
    finally:
        await runner.cleanup()


async def stopped() -> None:
    """Wait for SIGTERM or Ctrl-C."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
