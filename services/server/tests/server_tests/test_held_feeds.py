"""Feeds of many clients: a commit goes at once to those who wait for it, and to the others in rounds."""

import asyncio

import pytest

from waltz_protocol.frames.append_batch import Verdict
from waltz_protocol.messages.client import FeedData, FlushResponse
from waltz_server.partition import feed
from waltz_testkit.client_peers import FakeClient, split_frames
from waltz_testkit.partition_rig import PartitionRig

CLIENTS = feed.HELD_FROM_FEEDS
LOCK = 17


@pytest.fixture
def long_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second round comes in the time of a test."""
    monkeypatch.setattr(feed, "HELD_SECONDS_PER_FEED", 1000.0)
    monkeypatch.setattr(feed, "MAX_HELD_SECONDS", 1000.0)


async def followers(rig: PartitionRig, *, version: int = 5, count: int = CLIENTS) -> list[FakeClient]:
    """Clients at the end of the log, of which one commit was in a round just now."""
    clients = [FakeClient(number + 1, version=version) for number in range(count)]
    for client in clients:
        await rig.mount(client)
        rig.feed(client, -1)
    rig.append(clients[0])
    await rig.turns()
    assert [client.fed() for client in clients] == [[0]] * count
    return clients


async def test_what_follows_a_round_goes_to_its_author_at_once_and_to_the_others_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "HELD_SECONDS_PER_FEED", 1.0)
    monkeypatch.setattr(feed, "MAX_HELD_SECONDS", 0.5)
    async with PartitionRig() as rig:
        author, *others = await followers(rig)
        for _ in range(3):
            rig.append(author)
            await rig.turns()
        assert author.fed() == [0, 1, 2, 3]
        assert [client.fed() for client in others] == [[0]] * len(others)
        await rig.until(lambda: all(client.fed() == [0, 1, 2, 3] for client in others))


async def test_after_a_pause_all_get_a_commit_at_once() -> None:
    async with PartitionRig() as rig:
        clients = await followers(rig)
        await asyncio.sleep(feed.MAX_HELD_SECONDS)
        rig.append(clients[0])
        await rig.turns()
        assert [client.fed() for client in clients] == [[0, 1]] * CLIENTS


async def test_few_clients_get_everything_at_once(long_rounds: None) -> None:
    async with PartitionRig() as rig:
        clients = await followers(rig, count=CLIENTS - 1)
        rig.append(clients[0])
        await rig.turns()
        assert [client.fed() for client in clients] == [[0, 1]] * (CLIENTS - 1)


async def test_clients_before_version_5_get_everything_at_once(long_rounds: None) -> None:
    async with PartitionRig() as rig:
        clients = await followers(rig, version=4)
        rig.append(clients[0])
        await rig.turns()
        assert [client.fed() for client in clients] == [[0, 1]] * CLIENTS


async def test_who_is_refused_gets_what_was_held_before_the_answer(long_rounds: None) -> None:
    async with PartitionRig() as rig:
        winner, loser, *_ = await followers(rig)
        rig.append(winner, write=(LOCK,))
        await rig.turns()
        assert loser.fed() == [0]
        loser.clear()
        rig.append(loser, hwm=0, write=(LOCK,))
        await rig.turns()
        assert loser.fed() == [1]
        assert [answer.verdict for answer in loser.answered()] == [Verdict.LOCK_CONFLICT]
        first, *_ = [body[0] for _, body in split_frames(loser.stream)]
        assert first == FeedData.TYPE, "the feed is before the answer"


async def test_a_flush_is_answered_behind_what_was_held(long_rounds: None) -> None:
    async with PartitionRig() as rig:
        author, other, *_ = await followers(rig)
        rig.append(author)
        await rig.turns()
        other.clear()
        rig.flush(other)
        await rig.until(lambda: bool(other.of(FlushResponse)))
        assert other.fed() == [1]
        assert isinstance(other.messages()[-1], FlushResponse)


async def test_what_is_held_ends_with_the_connection_and_with_the_partition(long_rounds: None) -> None:
    async with PartitionRig() as rig:
        author, gone, *rest = await followers(rig)
        rig.append(author)
        await rig.turns()
        gone.close("gone")
        rig.partition.client_closed(gone)
        feeds = rig.partition._feeds
        assert {held.client for held in feeds._held} == set(rest)
    assert not feeds._held
    assert feeds._round is not None
    assert feeds._round.cancelled()
    assert [client.fed() for client in rest] == [[0]] * len(rest)
