"""Random faults, seeded, on virtual time: acknowledged is present, failed is absent, no fork, equal
replicas."""

from __future__ import annotations

import asyncio
import random

import pytest

from server_tests.store.fakes import Cluster, Server, entries, until
from waltz_cluster.memory_store import Fault
from waltz_server.store.api import AppendEntry, StoreSettings, StoreState

pytestmark = pytest.mark.looptime

FAULT_SECONDS = 20.0


class Chaos:
    """One run: load on whichever server is open, one fault after another, then peace and the checks."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.generation = 1
        self.settings = StoreSettings(
            checkpoint_interval=self.rng.choice([50, 500, 250_000]),
            replica_backlog_bytes=self.rng.choice([2_000, 32 * 1024 * 1024]),
            max_batch_records=self.rng.choice([3, 4096]),
            max_batch_size=1,
            request_timeout_seconds=0.5,
            max_retry_interval_ms=2_000,
            catch_up_batch_records=7,
        )
        self.wiped = False

    @property
    def server(self) -> Server:
        return self.cluster.servers[-1]

    async def load(self) -> None:
        while True:
            for server in self.cluster.servers:
                if server.store.state is StoreState.OPEN and server.store.writable:
                    server.store.append(entries(self.rng.randint(1, 12), self.rng.randint(0, 60)))
            await asyncio.sleep(self.rng.random() * 0.04)

    async def one_fault(self) -> None:
        """Something breaks, lasts a while (perhaps into the next fault), and is mended."""
        rng, cluster = self.rng, self.cluster
        node = cluster.nodes[rng.choice(cluster.names)]
        kind = rng.choice(["kill", "kill", "break", "hang", "slow", "owner", "owner", "zk", "wipe", "refuse"])
        if kind == "kill":
            node.kill()
        elif kind == "break":
            for link in list(node.links):
                link.break_off("broken")
        elif kind == "hang":
            node.answers = False
        elif kind == "slow":
            node.delay_seconds = rng.choice([0.002, 0.05, 0.3])
        elif kind == "refuse":
            what = rng.choice(["truncate", "set_lwm", "append", "list", "max"])
            node.refuse = lambda called, _session: "refused" if called == what else None
        elif kind == "owner":
            await self.change_owner()
        elif kind == "zk":
            faults = [None, None, Fault.LOSE_REPLY, Fault.LOSE_REQUEST]
            self.server.zk.fault = lambda _operation, _path: rng.choice(faults)
        elif kind == "wipe" and not self.wiped:
            self.wiped = True  # one disk per run
            node.kill()
            node.wipe()
        await asyncio.sleep(rng.random() * 3)
        if rng.random() < 0.8:
            self.heal()

    async def change_owner(self) -> None:
        self.generation += 1
        how = self.rng.choice(["crash", "unnoticed", "same"])
        if how == "same":
            self.server.store.set_generation(self.generation)
            return
        if how == "crash":
            await self.server.crash()
        elif self.rng.random() < 0.5:  # the old one is cut off from most nodes first, with records on its way
            for node in list(self.cluster.nodes.values())[1:]:
                self.server.blocked.add(node.name)
                for link in list(node.links):
                    link.break_off("cut off")
            await asyncio.sleep(self.rng.random() * 0.1)
        self.cluster.server(self.generation, settings=self.settings)

    def heal(self) -> None:
        for node in self.cluster.nodes.values():
            node.answers, node.delay_seconds, node.refuse = True, 0.0, None
            if not node.up:
                node.start()
        for server in self.cluster.servers:
            server.zk.fault = None
            server.blocked.clear()

    async def peace(self) -> None:
        self.heal()
        # Sometimes an early owner gets the partition back, and settles what it had in flight long ago.
        alive = [s for s in self.cluster.servers if s.task is not None and not s.task.done()]
        survivor = alive[-1] if self.rng.random() < 0.7 else alive[0]
        for server in alive:
            if server is not survivor:
                await server.crash()
        self.cluster.servers.remove(survivor)
        self.cluster.servers.append(survivor)
        self.server.store.set_generation(self.generation + 1)
        await until(
            lambda: (
                self.server.store.state is StoreState.OPEN
                and [r.state for r in self.server.store.replicas] == ["voting"] * len(self.cluster.names)
            ),
            300,
            0.1,
        )
        last = entries(3)
        await self.server.append(last)
        await until(lambda: len({n.max_txid for n in self.cluster.nodes.values()}) == 1, 60)

    def check(self) -> None:
        mark = self.server.store.high_water_mark
        assert mark is not None
        assert self.server.store.pending == 0
        self.cluster.check_equal(mark)
        log = [record[8:24] for record in self.cluster.nodes[self.cluster.names[0]].log]
        assert len(set(log)) == len(log)
        for server in self.cluster.servers:
            for entry in server.listener.committed_entries:
                assert log[entry.transaction_id] == entry.req_id, (
                    "an acknowledged record was lost or replaced"
                )
            present = set(log)
            failed: list[AppendEntry] = server.listener.failed_entries
            assert not any(entry.req_id in present for entry in failed), "a failed record was committed"


@pytest.mark.parametrize("seed", range(6))
async def test_random_faults(seed: int) -> None:
    names = ("a:1", "b:1", "c:1") if seed % 3 else ("a:1", "b:1", "c:1", "d:1", "e:1")
    async with Cluster(names) as cluster:
        chaos = Chaos(cluster, seed)
        cluster.server(1, settings=chaos.settings)
        async with asyncio.TaskGroup() as tasks:
            load = tasks.create_task(chaos.load())
            ends = asyncio.get_running_loop().time() + FAULT_SECONDS
            while asyncio.get_running_loop().time() < ends:
                await asyncio.sleep(chaos.rng.random())
                await chaos.one_fault()
            load.cancel()
        await chaos.peace()
        chaos.check()
