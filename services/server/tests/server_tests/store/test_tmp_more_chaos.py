import asyncio, os, random
import pytest
from server_tests.store.test_partition_store_chaos import Chaos, FAULT_SECONDS
from server_tests.store.fakes import Cluster, entries, until, FakeNode
from waltz_server.store.api import StoreState, StoreNotOpenError
pytestmark = pytest.mark.looptime
FIRST=int(os.environ.get("FIRST","100")); COUNT=int(os.environ.get("COUNT","40"))

class More(Chaos):
    async def one_fault(self):
        rng=self.rng
        kind=rng.random()
        node=self.cluster.nodes[rng.choice(self.cluster.names)]
        if kind<0.15:
            def flaky(called,_s,r=rng,p=rng.choice([0.05,0.3])):
                return "flaky" if r.random()<p else None
            node.refuse=flaky
            await asyncio.sleep(rng.random()*3)
            if rng.random()<0.7: node.refuse=None
        elif kind<0.25:
            for n in self.cluster.nodes.values():
                n.answers=rng.random()<0.5
            await asyncio.sleep(rng.random()*1.5)
            for n in self.cluster.nodes.values(): n.answers=True
        elif kind<0.33:
            for n in self.cluster.nodes.values():
                if rng.random()<0.8: n.kill()
            await asyncio.sleep(rng.random()*2)
            for n in self.cluster.nodes.values():
                if not n.up: n.start()
        elif kind<0.43:
            # two owners of the generation at once
            self.cluster.server(self.generation, settings=self.settings)
            await asyncio.sleep(rng.random()*2)
        elif kind<0.5:
            for s in self.cluster.servers:
                try:
                    await asyncio.wait_for(s.store.confirm_current(), rng.random())
                except (StoreNotOpenError, TimeoutError):
                    pass
        else:
            await super().one_fault()
    def heal(self):
        super().heal()

@pytest.mark.parametrize("seed", range(FIRST, FIRST+COUNT))
async def test_more(seed):
    names = ("a:1","b:1","c:1") if seed % 3 else ("a:1","b:1","c:1","d:1","e:1")
    async with Cluster(names) as cluster:
        chaos=More(cluster, seed)
        cluster.server(1, settings=chaos.settings)
        async with asyncio.TaskGroup() as tasks:
            load=tasks.create_task(chaos.load())
            ends=asyncio.get_running_loop().time()+FAULT_SECONDS
            while asyncio.get_running_loop().time()<ends:
                await asyncio.sleep(chaos.rng.random())
                await chaos.one_fault()
            load.cancel()
        await chaos.peace()
        chaos.check()

_peace = More.peace
async def peace(self):
    try:
        await _peace(self)
    except AssertionError:
        s=self.server.store
        if s.pending == 0 and s.state is StoreState.OPEN and self.server.listener.failed_entries:
            await self.server.append(entries(3))
            await until(lambda: len({n.max_txid for n in self.cluster.nodes.values()}) == 1, 60)
            return
        raise
More.peace = peace
