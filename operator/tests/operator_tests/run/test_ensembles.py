"""Sessions with ZooKeeper: shared, opened behind the caller's back, never waited for long."""

from __future__ import annotations

import asyncio

import pytest

from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.errors import ConnectError
from waltz_cluster.memory_store import MemoryZooKeeper
from waltz_cluster.store import ZooKeeperStore
from waltz_operator.run.zookeeper_sessions import Ensemble, Ensembles

ONE, TWO = ("n", "one"), ("n", "two")
HERE = Ensemble("zk:2181", "/root")


class Server:
    """Takes `seconds` to answer, or refuses."""

    def __init__(self, seconds: float = 0.0, refuses: bool = False) -> None:
        self.seconds, self.refuses = seconds, refuses
        self.asked = 0
        self._memory = MemoryZooKeeper()

    async def connect(self, _settings: ZooKeeperSettings) -> ZooKeeperStore:
        self.asked += 1
        await asyncio.sleep(self.seconds)
        if self.refuses:
            raise ConnectError("zk:2181 refuses")
        return self._memory.session(10.0)


@pytest.mark.looptime
async def test_clusters_of_one_ensemble_share_a_session_until_the_last_is_released() -> None:
    server = Server()
    ensembles = Ensembles(server.connect)
    first = await ensembles.store(ONE, HERE)
    assert await ensembles.store(TWO, HERE) is first
    assert server.asked == 1
    await ensembles.release(ONE)
    assert await ensembles.store(TWO, HERE) is first
    await ensembles.release(TWO)
    assert await ensembles.store(TWO, HERE) is not first
    await ensembles.close()


@pytest.mark.looptime
async def test_a_slow_ensemble_is_not_waited_for_and_used_once_it_answers() -> None:
    server = Server(seconds=4.0)
    ensembles = Ensembles(server.connect, patience_seconds=1.0)
    loop = asyncio.get_running_loop()
    for _ in range(3):
        before = loop.time()
        with pytest.raises(ConnectError, match="has not answered yet"):
            await ensembles.store(ONE, HERE)
        assert loop.time() - before == pytest.approx(1.0)
    await asyncio.sleep(1.5)
    await ensembles.store(ONE, HERE)
    assert server.asked == 1
    await ensembles.close()


@pytest.mark.looptime
@pytest.mark.parametrize("server", [Server(seconds=4.0), Server(refuses=True)])
@pytest.mark.parametrize(
    ("connect_string", "hint"),
    [
        ("zk:2181", r"if a Service of the cluster's namespace is meant, write zk\.n\.svc$"),
        ("zk-0:2181,zk-1.other:2181,zk-2:2181", r"looks zk-0, zk-2 up .* write zk-0\.n\.svc, zk-2\.n\.svc$"),
        ("zk.other:2181,[fd00::1]:2181,192.0.2.1:2181", None),
    ],
)
async def test_names_that_only_the_clusters_namespace_knows_are_named(
    server: Server, connect_string: str, hint: str | None
) -> None:
    ensembles = Ensembles(server.connect, patience_seconds=1.0)
    with pytest.raises(ConnectError, match=hint) as refused:
        await ensembles.store(ONE, Ensemble(connect_string, "/root"))
    assert (hint is not None) == ("its own namespace" in str(refused.value))
    await ensembles.close()


@pytest.mark.looptime
async def test_a_refusal_is_told_and_tried_again() -> None:
    server = Server(refuses=True)
    ensembles = Ensembles(server.connect)
    for _ in range(2):
        with pytest.raises(ConnectError, match="refuses"):
            await ensembles.store(ONE, HERE)
    server.refuses = False
    await ensembles.store(ONE, HERE)
    assert server.asked == 3
    await ensembles.close()


@pytest.mark.looptime
async def test_a_session_that_nobody_wants_any_more_is_not_opened_on() -> None:
    server = Server(seconds=60.0)
    ensembles = Ensembles(server.connect, patience_seconds=5.0)
    waiting = asyncio.gather(ensembles.store(ONE, HERE), return_exceptions=True)
    await asyncio.sleep(0.1)
    await ensembles.release(ONE)
    (answer,) = await waiting
    assert isinstance(answer, ConnectError)
    assert "no longer needed" in str(answer)
