"""A partition that is lost, and comes back while the object that was lost still settles."""

import asyncio

from waltz_protocol.messages.client import MountResponse, MountState
from waltz_protocol.types import ReqId
from waltz_testkit.client_peers import FakeClient, make_append
from waltz_testkit.loopback_server import LoopbackServer


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def ready(client: FakeClient, seq: int) -> bool:
    return MountResponse(ReqId(client.client_id, 1, 0, seq), MountState.READY) in client.messages()


async def test_a_mount_of_the_lost_object_is_not_ready_once_the_partition_is_back() -> None:
    async with LoopbackServer({0: 1}) as server:
        await turns()
        registry, old = server.registry, server.registry.partitions[0]
        store = server.backend.stores[0]
        store.auto_commit = False
        writer, late = FakeClient(1, version=4), FakeClient(2, version=4)
        for client in (writer, late):
            registry.connection_opened(client)  # type: ignore[arg-type]
            client.unmount_stale = lambda partition: None  # type: ignore[attr-defined]
        old.mount(writer, ReqId(1, 1, 0, 1).pack(), 1, -1)
        await turns()
        assert ready(writer, 1)
        old.append(writer, make_append(ReqId(1, 1, 0, 2), client_high_water_mark=-1, write=(5,)))
        await turns()
        assert store.pending == 1
        old.mount(late, ReqId(2, 1, 0, 1).pack(), 1, -1)  # waits for what was handed over before it
        await turns()
        assert not ready(late, 1)
        old.append(writer, make_append(ReqId(1, 1, 0, 3), client_high_water_mark=-1, write=(6,)))
        await turns()
        assert store.pending == 2

        registry.adopt({}, settle=True)
        registry.adopt({0: 3}, settle=True)
        await turns()
        new = registry.partitions[0]
        assert new is not old
        store.commit_next(1)
        await turns(60)
        assert new.generation == 3
        store.commit_next()
        await turns(60)
        assert not ready(late, 1), (
            "READY by an object that is closed at once; the new one knows no such mount"
        )
