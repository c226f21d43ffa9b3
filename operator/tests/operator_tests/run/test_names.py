"""A name server that is silent for one cluster holds up no other one."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast
from uuid import UUID

import pytest

from operator_tests.kube.objects import ObjectsKube
from operator_tests.run.test_refusals import waltz_cluster
from waltz_admin.errors import AdminError
from waltz_admin.storage_admin import inspect_node
from waltz_cluster.serializers import StoreParams
from waltz_operator.kube.errors import KubeNotFoundError
from waltz_operator.run import names
from waltz_operator.run.names import QUICK_THREADS, SLOW_THREADS, ClusterNames, Names
from waltz_operator.run.process import OperatorParts
from waltz_operator.run.reconcile import PassResult
from waltz_operator.settings import OperatorSettings
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint

A, B = ("demo", "a"), ("demo", "b")


class NameServer:
    """Answers names but those of `lost`, which wait until `answering` and are then not known. `asked`: in
    order."""

    def __init__(self) -> None:
        self.answering = threading.Event()
        self.asked: list[str] = []
        self.busy = self.most = 0
        self._real = socket.getaddrinfo

    def getaddrinfo(self, host: Any, *more: Any, **kinds: Any) -> Any:
        if not str(host).endswith(".example"):
            return self._real(host, *more, **kinds)
        self.asked.append(host)
        if host.endswith(".slow.example"):
            self.answering.wait(30.0)
        if host.endswith(".lost.example"):
            self.busy += 1
            self.most = max(self.most, self.busy)
            self.answering.wait(30.0)
            self.busy -= 1
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return self._real("127.0.0.1", *more, **kinds)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    found = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", found.getaddrinfo)
    yield found
    found.answering.set()


@contextmanager
def threads_end() -> Iterator[None]:
    """Wait for the threads that began within."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(10.0)


@asynccontextmanager
async def lookups(server: NameServer) -> AsyncIterator[ClusterNames]:
    found = ClusterNames()
    with threads_end():
        try:
            yield found
        finally:
            server.answering.set()
            found.close()


async def given_up(names: ClusterNames, hosts: list[str]) -> None:
    """All are asked for, and nobody waits for them any longer."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await asyncio.gather(*(names.lookup(host) for host in hosts))


async def test_the_passes_of_one_cluster_do_not_wait_for_the_name_server_of_another(
    server: NameServer,
) -> None:
    """As many nodes of A are in a silent zone as the process has threads for lookups; each is given up."""
    parts = OperatorParts(ObjectsKube(waltz_cluster()), OperatorSettings(), check=lambda: None)
    params, tls = StoreParams(UUID(int=7), 1), TlsSettings(enabled=False)
    reached: list[str] = []

    async def one_pass(_: str, name: str) -> PassResult:
        if name == "b":
            with pytest.raises(AdminError, match="refused"):
                await inspect_node(Endpoint("n0.good.example", 1), params, tls)
            reached.append(name)
        else:
            nodes = [inspect_node(Endpoint(f"n{i}.lost.example", 1), params, tls) for i in range(40)]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await asyncio.gather(*nodes)
        return PassResult(60.0, False)

    with threads_end():
        parts.reconciler.reconcile = one_pass  # type: ignore[method-assign,assignment]
        await parts.reconcile(*A)
        async with asyncio.timeout(3.0):
            await parts.reconcile(*B)
        assert reached == ["b"]
        assert 1 <= server.most <= QUICK_THREADS + SLOW_THREADS
        server.answering.set()
        await parts.close()


async def test_a_cluster_that_is_gone_keeps_no_threads(server: NameServer) -> None:
    parts = OperatorParts(ObjectsKube(), OperatorSettings(), check=lambda: None)
    with threads_end():
        before = threading.active_count()
        await parts.names.of(A).lookup("n0.good.example")
        assert threading.active_count() == before + 1
        lookup = parts.names.of(A).lookup
        await parts.gone(A)
        with pytest.raises(OSError, match="gone"):
            await lookup("n0.good.example")
    assert threading.active_count() == before
    with pytest.raises(KubeNotFoundError):
        await parts.reconcile(*A)
    await parts.close()


async def test_a_name_waits_for_a_thread_once_at_most(server: NameServer) -> None:
    async with lookups(server) as found:
        hosts = [f"n{i}.lost.example" for i in range(5)]
        for _ in range(3):
            await given_up(found, hosts)
        server.answering.set()
        last = [found.lookup(host) for host in hosts]
        assert all(isinstance(one, OSError) for one in await asyncio.gather(*last, return_exceptions=True))
        assert sorted(server.asked) == hosts


async def test_names_that_were_slow_do_not_hold_up_the_others(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More nodes of a cluster than it has threads are in a silent zone, and the others are still reached."""
    monkeypatch.setattr(names, "SLOW_SECONDS", 0.01)
    lost = [f"n{i}.lost.example" for i in range(QUICK_THREADS + SLOW_THREADS + 1)]
    async with lookups(server) as found:
        for host in lost:
            await given_up(found, [host])
            server.answering.set()
            with pytest.raises(socket.gaierror):
                await found.lookup(host)
            server.answering.clear()
        await given_up(found, lost)
        async with asyncio.timeout(5.0):
            assert list(await found.lookup("n0.good.example")) == ["127.0.0.1"]


async def test_an_answer_that_came_too_late_is_there_the_next_time(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More nodes than threads have names that are answered slowly: each pass has more of them, until it has
    all."""
    monkeypatch.setattr(names, "SLOW_SECONDS", 0.01)
    slow = [f"n{i}.slow.example" for i in range(QUICK_THREADS + SLOW_THREADS + 3)]
    async with lookups(server) as found:
        await given_up(found, slow)
        async with asyncio.timeout(10.0):
            while len(server.asked) < QUICK_THREADS:  # a busy machine starts threads late
                await asyncio.sleep(0.01)
        await asyncio.sleep(2 * names.SLOW_SECONDS)
        server.answering.set()
        async with asyncio.timeout(10.0):
            while found._asked:
                await asyncio.sleep(0.01)
        server.answering.clear()
        late = [host for host in slow if host in found._late]
        assert late
        async with asyncio.timeout(5.0):
            assert [list(await found.lookup(host)) for host in late] == [["127.0.0.1"]] * len(late)


async def test_a_name_that_is_quick_again_is_one_like_any_other(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(names, "LATE_SECONDS", 0.0)

    def moving() -> float:
        clock[0] += 10.0
        return clock[0]

    async with lookups(server) as found:
        monkeypatch.setattr(
            names, "time", cast("Any", type("Clock", (), {"monotonic": staticmethod(moving)}))
        )
        await found.lookup("n0.good.example")
        monkeypatch.setattr(names, "time", time)
        assert found._slow_names == {"n0.good.example"}
        await found.lookup("n0.good.example")
        assert found._slow_names == set()


async def test_each_cluster_has_its_own() -> None:
    found = Names()
    assert found.of(A) is found.of(A)
    assert found.of(A) is not found.of(B)
    found.close()
