"""HTTP: python -m inventory.app north.yaml."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import prometheus_client
import sqlalchemy as sa
import yaml
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from inventory import store
from inventory.clerk import Clerk, OtherContentError, UnknownOrderError
from inventory.clock import Clock
from inventory.events import INVENTORY
from inventory.store import Order, State, Store
from waltz_client import WaltzClient, WaltzClientError
from waltz_client.prometheus import PrometheusObserver
from waltz_client.sql import SqlCallbacks

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Settings(BaseModel):
    """Of one instance."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    waltz: dict[str, object] | str
    database: str
    port: int
    tick_seconds: float = Field(default=10.0, gt=0)
    hold_ticks: int = Field(default=90, ge=1)


class Pieces(BaseModel):
    """The body of a delivery and of an order."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str = Field(min_length=1, max_length=100)
    item: str = Field(min_length=1, max_length=100)
    quantity: int = Field(ge=1, le=10**9)


CLERK = web.AppKey("clerk", Clerk)
CLIENT = web.AppKey("client", WaltzClient)
CALLBACKS = web.AppKey("callbacks", SqlCallbacks)
REGISTRY = web.AppKey("registry", prometheus_client.CollectorRegistry)


def make_app(settings: Settings) -> web.Application:
    """One instance; it runs from the start of the application to its clean-up."""

    async def instance(app: web.Application) -> AsyncIterator[None]:
        engine = sa.create_engine(settings.database)
        tables = Store(engine)
        await asyncio.to_thread(tables.create_tables)
        registry = prometheus_client.CollectorRegistry()
        observer = PrometheusObserver(registry)
        async with SqlCallbacks(engine, store.apply, where=INVENTORY.owns) as callbacks:
            await callbacks.create_tables()
            async with WaltzClient.connect(settings.waltz, callbacks, observers=[observer]) as client:
                observer.watch(client, "inventory")
                app[CLERK] = Clerk(client, callbacks, tables, hold_ticks=settings.hold_ticks)
                app[CLIENT], app[CALLBACKS], app[REGISTRY] = client, callbacks, registry
                clock = asyncio.create_task(
                    Clock(client, tables, tick_seconds=settings.tick_seconds).run()
                )
                yield
                clock.cancel()
                await asyncio.wait([clock])
                await client.close(drain_seconds=10)
        engine.dispose()

    app = web.Application(middlewares=[_errors])
    app.cleanup_ctx.append(instance)
    app.add_routes(
        [
            web.post("/warehouses/{warehouse}/deliveries", deliver),
            web.get("/warehouses/{warehouse}/items/{item}", stock),
            web.post("/warehouses/{warehouse}/orders", reserve),
            web.get("/warehouses/{warehouse}/orders/{order}", order),
            web.post("/warehouses/{warehouse}/orders/{order}/ship", ship),
            web.post("/warehouses/{warehouse}/orders/{order}/cancel", cancel),
            web.get("/health", health),
            web.get("/metrics", metrics),
        ]
    )
    return app


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ValidationError as error:
        return web.json_response({"error": str(error)}, status=400)
    except UnknownOrderError as error:
        return web.json_response({"error": str(error)}, status=404)
    except OtherContentError as error:
        return web.json_response({"error": str(error)}, status=422)
    except WaltzClientError as error:  # whatever it is: the same id asks what has become of it
        return web.json_response({"error": f"{error}; ask again"}, status=503)


async def deliver(request: web.Request) -> web.Response:
    """Add stock."""
    one = Pieces.model_validate_json(await request.read())
    await request.app[CLERK].deliver(request.match_info["warehouse"], one.id, one.item, one.quantity)
    return web.json_response({"id": one.id}, status=201)


async def stock(request: web.Request) -> web.Response:
    """Of an item."""
    found = await request.app[CLERK].stock(request.match_info["warehouse"], request.match_info["item"])
    return web.json_response(
        {"on_hand": found.on_hand, "reserved": found.reserved, "available": found.available}
    )


async def reserve(request: web.Request) -> web.Response:
    """201 while the order has its pieces, 409 when it has none (any longer)."""
    one = Pieces.model_validate_json(await request.read())
    clerk = request.app[CLERK]
    done = await clerk.reserve(request.match_info["warehouse"], one.id, one.item, one.quantity)
    return _answer(done, 201 if done.state in (State.RESERVED, State.SHIPPED) else 409)


async def order(request: web.Request) -> web.Response:
    """What has become of it."""
    found = await request.app[CLERK].order(request.match_info["warehouse"], request.match_info["order"])
    return _answer(found, 200)


async def ship(request: web.Request) -> web.Response:
    """200 when it is shipped, 409 when it cannot be."""
    done = await request.app[CLERK].ship(request.match_info["warehouse"], request.match_info["order"])
    return _answer(done, 200 if done.state is State.SHIPPED else 409)


async def cancel(request: web.Request) -> web.Response:
    """200 when it is cancelled, 409 when it cannot be."""
    done = await request.app[CLERK].cancel(request.match_info["warehouse"], request.match_info["order"])
    return _answer(done, 200 if done.state is State.CANCELLED else 409)


async def health(request: web.Request) -> web.Response:
    """200 while every partition takes appends and is applied, 503 with what is wrong otherwise."""
    status, stopped = request.app[CLIENT].status(), request.app[CALLBACKS].stopped
    wrong = {one.partition: one.reason for one in status.partitions if not one.available}
    wrong |= {partition: str(error) for partition, error in stopped.items()}
    lag = sum(one.lag or 0 for one in status.partitions)
    return web.json_response({"wrong": wrong, "lag": lag}, status=503 if wrong else 200)


async def metrics(request: web.Request) -> web.Response:
    """For Prometheus."""
    body = prometheus_client.generate_latest(request.app[REGISTRY])
    return web.Response(body=body, headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST})


def _answer(one: Order, status: int) -> web.Response:
    return web.json_response(
        {"id": one.order, "item": one.item, "quantity": one.quantity, "state": one.state}, status=status
    )


def main() -> None:
    """Until SIGTERM."""
    settings = Settings.model_validate(yaml.safe_load(Path(sys.argv[1]).read_text()))
    web.run_app(make_app(settings), host="127.0.0.1", port=settings.port)


if __name__ == "__main__":
    main()
