"""Instances of a named producer at a server: the fence of epochs, and one number for one content (ADR 38)."""

from __future__ import annotations

import pytest

from waltz_protocol.connection_number import COUNTER_BITS
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames.append import Append, encode_append, parse_append
from waltz_protocol.frames.append_batch import Repeated, Verdict
from waltz_protocol.messages.client import MountRequest, MountResponse, MountState
from waltz_protocol.messages.producers import ProducerMountRequest
from waltz_protocol.types import ReqId
from waltz_server.partition import mounts as mounts_module
from waltz_server.partition.mounts import MountRegistry
from waltz_testkit.client_peers import FakeClient, make_append
from waltz_testkit.loopback_server import LoopbackServer
from waltz_testkit.partition_rig import GENERATION, PARTITION, PartitionRig, wire_record

ID = 7


def _instance(number: int) -> FakeClient:
    return FakeClient(ID, seq_num=number << COUNTER_BITS, version=5)


def _append(number: int, data: bytes, content: int) -> Append:
    return make_append(ReqId(ID, content, PARTITION, number), data=data)


def _send(rig: PartitionRig, client: FakeClient, append: Append, searched: int = -1) -> None:
    rig.partition.append(client, append, Repeated(GENERATION, searched))


async def _mount(rig: PartitionRig, client: FakeClient, epoch: int) -> MountState:
    req_id = rig.req_id(client)
    mark = len(rig.store.log) - 1
    rig.partition.mount(client, req_id.pack(), GENERATION, mark, epoch)
    await rig.turns()
    (state,) = [m.state for m in client.messages() if isinstance(m, MountResponse) and m.req_id == req_id]
    return state


async def test_safety_e8_a_newer_instance_takes_the_mount_and_the_older_one_is_refused() -> None:
    async with PartitionRig() as rig:
        older, newer = _instance(1), _instance(2)
        assert await _mount(rig, older, 1) is MountState.READY
        assert await _mount(rig, newer, 2) is MountState.READY
        assert older.withdrawn == [PARTITION]
        _send(rig, older, _append(1, b"of the older", 5))
        await rig.turns()
        assert [one.verdict for one in older.answered()] == [Verdict.NOT_MOUNTED]
        assert await _mount(rig, older, 1) is MountState.FENCED
        rig.partition.client_closed(newer)
        assert await _mount(rig, older, 1) is MountState.FENCED, "though the newer one has gone"
        assert await _mount(rig, newer, 2) is MountState.READY
        assert len(rig.store.log) == 0


async def test_safety_e8_ready_waits_for_what_an_older_instance_has_under_way() -> None:
    """It waits for a lock in a line while the newer instance mounts."""
    async with PartitionRig(auto_commit=False) as rig:
        other, older, newer = FakeClient(1, version=5), _instance(1), _instance(2)
        await rig.mount(other)
        await _mount(rig, older, 1)
        rig.append(other, write=(5,), hwm=-1)
        await rig.turns()
        mine = encode_append(ReqId(ID, 9, PARTITION, 1).pack(), 0, (), (), (5,), 0, b"mine", 5)
        append = parse_append(memoryview(mine)[FRAME_HEADER_SIZE:], 5)
        assert append is not None
        _send(rig, older, append)
        await rig.turns()
        mount = rig.req_id(newer)
        rig.partition.mount(newer, mount.pack(), GENERATION, 1, 2)
        _send(rig, older, _append(2, b"behind the mount", 4))
        await rig.turns()
        assert newer.messages() == []
        rig.store.commit_next()
        await rig.turns()
        assert newer.messages() == []
        rig.store.commit_next()
        await rig.turns()
        assert newer.messages() == [MountResponse(mount, MountState.READY)]  # at the mark that has it
        assert [record[8:12] for record in rig.store.log] == [n.to_bytes(4) for n in (1, ID)]


async def test_safety_e8_a_search_of_a_lost_session_decides_nothing_in_the_next_one() -> None:
    """It waits behind another of its client; meanwhile a second instance writes its number elsewhere."""
    async with PartitionRig(auto_commit=False) as rig:
        other, one = FakeClient(1, version=5), _instance(1)
        await rig.mount(other)
        await _mount(rig, one, 1)
        rig.append(other, write=(5,), hwm=-1)
        await rig.turns()
        frame = encode_append(ReqId(ID, 3, PARTITION, 0).pack(), 0, (), (), (5,), 0, b"waits for the lock", 5)
        first = parse_append(memoryview(frame)[FRAME_HEADER_SIZE:], 5)
        assert first is not None
        _send(rig, one, first)
        _send(rig, one, _append(1, b"event", 4))
        await rig.turns(30)
        rig.store.lose_session("fenced by a newer session")
        rig.store.settle(0, [wire_record(0, ReqId(ID, 4, PARTITION, 1), b"event")])
        rig.store.open_session()
        await rig.turns(30)
        rig.store.commit_next()
        await rig.turns(30)
        numbers = [(record[8:12], record[20:24]) for record in rig.store.log]
        assert numbers.count((ID.to_bytes(4), (1).to_bytes(4))) == 1
        assert (Verdict.COMMITTED, 1, 0) in [(a.verdict, a.seq_num, a.number) for a in one.answered()]


async def test_an_instance_that_lost_its_place_during_its_catch_up_is_not_answered_ready() -> None:
    async with PartitionRig(records=20_000) as rig:
        older = FakeClient(ID, seq_num=1 << COUNTER_BITS, version=5, buffer_bytes=1000)
        mount = rig.req_id(older)
        rig.partition.mount(older, mount.pack(), GENERATION, -1, 1)
        await rig.turns(5)
        assert not older.writable
        assert not any(isinstance(message, MountResponse) for message in older.messages())
        assert await _mount(rig, _instance(2), 2) is MountState.READY
        for _ in range(200):
            older.drain()
            await rig.turns(5)
        states = [m.state for m in older.messages() if isinstance(m, MountResponse) and m.req_id == mount]
        assert states == [MountState.NOT_READY]


async def test_safety_e8_two_contents_under_one_number_are_never_both_taken() -> None:
    async with PartitionRig(auto_commit=False) as rig:
        one, two = FakeClient(ID, seq_num=1, version=5), FakeClient(ID, seq_num=1 << COUNTER_BITS, version=5)
        await rig.mount(one)
        await _mount(rig, two, 0)
        one_append, other_append = _append(-2, b"one", 5), _append(-2, b"another", 6)
        _send(rig, one, one_append)
        await rig.turns()
        _send(rig, one, other_append)  # while the first is in flight, under another request id
        await rig.turns()
        assert [(a.verdict, a.generation, a.number) for a in one.answered()] == [
            (Verdict.REQUEST_ID_IN_USE, 6, -1)
        ]
        rig.store.commit_next()
        await rig.turns()
        for append in (other_append, one_append):
            _send(rig, one, append)
            await rig.turns(30)
        answers = sorted((a.verdict, a.generation, a.number) for a in one.answered())
        assert answers == [
            (Verdict.COMMITTED, 5, 0),
            (Verdict.COMMITTED, 5, 0),
            (Verdict.REQUEST_ID_IN_USE, 6, -1),
            (Verdict.REQUEST_ID_IN_USE, 6, 0),  # with the id of the one that has the number
        ]
        assert len(rig.store.log) == 1


def test_safety_e8_ordinary_mounts_of_the_id_neither_fence_nor_hold_a_producer_up() -> None:
    registry = MountRegistry()
    ordinary, producer = FakeClient(ID, seq_num=1), FakeClient(ID, seq_num=1 << COUNTER_BITS)
    mount = registry.offer(ordinary, 3)
    mine = registry.offer(producer, 3, epoch=1)
    assert mount is not None
    assert mine is not None
    assert mine.elders == ()
    assert mine.replaced is mount
    assert registry.valid(ordinary) is None
    assert registry.offer(ordinary, 3) is not None
    assert not registry.is_fenced(ordinary, 0)
    mine.fence_replaced()
    assert mount.fenced


def test_safety_e8_all_that_older_instances_had_is_fenced() -> None:
    registry = MountRegistry()
    old = [FakeClient(ID, seq_num=(number << COUNTER_BITS) + again) for number in (1, 2) for again in (0, 1)]
    mounts = [registry.offer(client, 3) for client in old]
    mine = registry.offer(FakeClient(ID, seq_num=9 << COUNTER_BITS), 3, epoch=4)
    assert mine is not None
    mine.fence_replaced()
    assert all(mount is not None and mount.fenced for mount in mounts)
    assert len(registry) == 1


def test_the_epochs_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts_module, "MAX_EPOCHS", 2)
    registry = MountRegistry()
    for client_id in (1, 2, 3):
        client = FakeClient(client_id)
        assert registry.offer(client, 3, epoch=5) is not None
        registry.remove(client)
    assert [registry.is_fenced(FakeClient(client_id), 4) for client_id in (1, 2, 3)] == [False, True, True]


def test_safety_e8_a_living_instance_fences_older_ones_though_its_epoch_was_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mounts_module, "MAX_EPOCHS", 2)
    registry = MountRegistry()
    living, older = FakeClient(1, seq_num=1), FakeClient(1, seq_num=1 << COUNTER_BITS)
    assert registry.offer(living, 3, epoch=5) is not None
    for client_id in (2, 3):
        assert registry.offer(FakeClient(client_id), 3, epoch=5) is not None
    assert registry.is_fenced(older, 4)
    assert registry.offer(older, 3, epoch=4) is None
    assert registry.valid(living) is not None
    assert registry.offer(living, 3, epoch=5) is not None
    registry.remove(living)
    assert registry.is_fenced(older, 4), "it mounted again, so that it is remembered again"


def test_the_epoch_that_was_used_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts_module, "MAX_EPOCHS", 2)
    registry = MountRegistry()
    clients = {client_id: FakeClient(client_id) for client_id in (1, 2, 3)}
    for client_id in (1, 2, 1, 3):
        assert registry.offer(clients[client_id], 3, epoch=5) is not None
    for client in clients.values():
        registry.remove(client)
    assert [registry.is_fenced(clients[client_id], 4) for client_id in (1, 2, 3)] == [True, False, True]


async def test_a_second_object_of_one_epoch_may_send_the_numbers_of_its_application() -> None:
    """A producer that connects anew, or was copied: its numbers have nothing to do with those of mounts."""
    async with PartitionRig() as rig:
        one, two = _instance(1), _instance(2)
        assert await _mount(rig, one, 3) is MountState.READY
        assert await _mount(rig, two, 3) is MountState.READY
        elder = rig.req_id(one).seq_num
        for number in (0, elder, elder + 1):
            _send(rig, two, _append(number, b"event", 5))
        await rig.turns(30)
        assert {a.verdict for a in two.answered()} == {Verdict.COMMITTED}
        assert len(rig.store.log) == 3


async def test_the_mount_of_a_producer_on_the_wire() -> None:
    async with LoopbackServer({3: 2}) as server:
        newer, older = await server.peer(version=5), await server.peer(version=5)
        mount = ReqId(ID, 2, 3, 4)
        newer.send(ProducerMountRequest(mount, -1, 2 << COUNTER_BITS, 2))
        assert await newer.read() == MountResponse(mount, MountState.READY)
        older.send(ProducerMountRequest(mount, -1, 1 << COUNTER_BITS, 1))
        assert await older.read() == MountResponse(mount, MountState.FENCED)
        held = ReqId(ID, 2, 4, 4)
        newer.send(ProducerMountRequest(held, -1, 2 << COUNTER_BITS, 2))  # not here yet
        newer.send(MountRequest(mount, -1, 2 << COUNTER_BITS))
        assert await newer.read() == MountResponse(mount, MountState.READY)
        server.registry.adopt({3: 2, 4: 2})
        assert await newer.read() == MountResponse(held, MountState.READY)
        older.send(ProducerMountRequest(held, -1, 1 << COUNTER_BITS, 1))
        assert await older.read() == MountResponse(held, MountState.FENCED)


@pytest.mark.parametrize(
    ("version", "epoch", "said"), [(4, 1, "message type 43 is unknown"), (5, 0, "with the epoch 0")]
)
async def test_a_mount_that_no_producer_sends_ends_the_connection(
    version: int, epoch: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with LoopbackServer({3: 2}) as server:
        peer = await server.peer(version=version)
        body = bytes.fromhex("2B 00000007 00000002 00000003 00000004") + bytes(16) + epoch.to_bytes(4)
        peer.write(bytes.fromhex(f"4C {version:04X} {len(body):08X}") + body)
        with pytest.raises(EOFError):
            while True:
                message = await peer.read()
                assert said in getattr(message, "text", said)
