"""Version 5: what answers decide, and what is sent again behind a mount."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from client_tests.test_stream_partition import OWN, REQUEST, STRANGER, Session, answer, append, feed, mounted
from waltz_client import Append, Committed
from waltz_client._internal.append.pending import PendingAppend
from waltz_client._internal.append.request import lock_hashes
from waltz_client._internal.req_ids import NEAR
from waltz_client._internal.rpc.session import RpcSession
from waltz_client._internal.stream.partition import StreamPartition
from waltz_client._internal.stream.session import StreamSession
from waltz_client.errors import (
    AppendFailedError,
    LockConflictError,
    NoQuorumError,
    Outcome,
    ServerOverloadedError,
    TransactionTooLargeError,
)
from waltz_client.testing import InProcessLog
from waltz_client.testing.answers import answer as refuse_append
from waltz_client.testing.values import ClientConnection
from waltz_protocol.codec import CLIENT
from waltz_protocol.frame import FRAME_HEADER_SIZE
from waltz_protocol.frames.append import Append as WireAppend
from waltz_protocol.frames.append import encode_append, parse_append
from waltz_protocol.frames.append_batch import (
    BATCH_BYTES,
    REPEATED_APPEND_TYPE,
    Answer,
    Repeated,
    Verdict,
    encode_answers,
    encode_batch,
    split_repeated,
)
from waltz_protocol.locks import LockId
from waltz_protocol.messages.client import CloseCode, CloseNotice, MountState, UnmountRequest
from waltz_protocol.types import Endpoint, ReqId

LOCK = LockId("acct", 7)


def mounted_5(received: int = 4) -> tuple[StreamPartition, Session]:
    """As `mounted`, on a connection of version 5."""
    partition, session = mounted(received)
    session.version = 5
    return partition, session


def said(handle: PendingAppend, verdict: Verdict, number: int = -1, **more: object) -> Answer:
    """An answer to this append."""
    return Answer(verdict, handle.generation, 0, handle.seq_num, number, **more)  # type: ignore[arg-type]


def again(frame: bytes) -> tuple[Repeated, ReqId]:
    """What a frame sends again."""
    body = memoryview(frame)[FRAME_HEADER_SIZE:]
    assert body[0] == REPEATED_APPEND_TYPE
    repeated, rest = split_repeated(body)
    parsed = parse_append(rest, 5)
    assert parsed is not None
    return repeated, ReqId.unpack(parsed.req_id)


async def test_safety_e7_an_answer_that_overtakes_the_feed_waits_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else the caller's next append, with what was received for its view, would lose to this one."""
    partition, _ = mounted_5(4)
    handles = [append(partition) for _ in range(3)]
    partition.append_answered(said(handles[1], Verdict.COMMITTED, 6))
    assert [one.outcome for one in handles] == [None] * 3
    partition.feed_data(feed(STRANGER, 1, 5))
    partition.feed_data(feed(OWN, handles[1].seq_num, 6))
    assert [one.outcome for one in handles] == [Outcome.FAILED, Outcome.COMMITTED, None]
    assert handles[1].transaction_id == 6
    partition.append_answered(said(handles[1], Verdict.COMMITTED, 6))
    assert handles[2].outcome is None
    assert [one for one in caplog.records if one.levelname != "DEBUG"] == []


async def test_safety_e7_a_conflict_waits_for_the_feed_and_names_lock_and_winner() -> None:
    partition, _ = mounted_5(4)
    handle = PendingAppend(0, lambda _: None)
    request = REQUEST._replace(write_locks=lock_hashes([LOCK]))
    partition.send_append(handle, request)
    partition.append_answered(said(handle, Verdict.LOCK_CONFLICT, 5, lock=LOCK.hash, winner=12))
    assert handle.outcome is None
    partition.feed_data(feed(STRANGER, 1, 5))
    error = handle.error
    assert isinstance(error, LockConflictError)
    assert (error.lock, error.winner, error.conflicting_high_water_mark) == (LOCK, 12, 5)
    assert "the lock 'acct' 7 was touched by transaction 5 (of client 12)" in str(error)


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        (Verdict.OVERLOADED, ServerOverloadedError),
        (Verdict.NO_QUORUM, NoQuorumError),
        (Verdict.TOO_LARGE, TransactionTooLargeError),
        (Verdict.DROPPED, AppendFailedError),
        (Verdict.REQUEST_ID_IN_USE, AppendFailedError),
        (Verdict.REPEAT_TOO_OLD, AppendFailedError),
    ],
)
async def test_refusals_are_typed_errors(verdict: Verdict, error: type[Exception]) -> None:
    partition, _ = mounted_5(4)
    handle = append(partition)
    partition.append_answered(said(handle, verdict, 30))
    assert type(handle.error) is error
    if isinstance(handle.error, ServerOverloadedError):
        assert handle.error.retry_after_ms == 30


@pytest.mark.parametrize("verdict", [Verdict.DROPPED, Verdict.NO_QUORUM, Verdict.OVERLOADED])
async def test_safety_e6_a_refusal_of_an_earlier_sending_does_not_decide_a_later_one(
    verdict: Verdict,
) -> None:
    """The append went to one server, to its successor, who committed it, and its owner is the first one
    again, which says what became of the first sending. The answer to the mount decides."""
    partition, one = mounted_5(4)
    handle = append(partition)
    partition.session_lost(cast(StreamSession, one))
    two = Session()
    two.version = 5
    partition.session_ready(cast(StreamSession, two))
    answer(partition, two)
    partition.session_lost(cast(StreamSession, two))
    partition.req_ids.raise_generation(3)
    partition.session_ready(cast(StreamSession, one))
    partition.append_answered(said(handle, verdict))
    assert handle.error is None
    partition.feed_data(feed(STRANGER, 1, 5))
    partition.feed_data(feed(OWN, handle.seq_num, 6))
    assert handle.outcome is Outcome.COMMITTED


async def test_an_answer_to_another_generation_or_number_means_nothing() -> None:
    partition, _ = mounted_5(4)
    handle = append(partition)
    partition.append_answered(Answer(Verdict.DROPPED, 9, 0, handle.seq_num))
    partition.append_answered(Answer(Verdict.DROPPED, 1, 0, handle.seq_num + 1))
    assert handle.outcome is None


@pytest.mark.parametrize("verdict", [Verdict.NOT_MOUNTED, Verdict.STALE_GENERATION, Verdict.UNDECIDED])
async def test_safety_e6_what_no_server_has_decided_is_sent_again_behind_the_next_mount(
    verdict: Verdict,
) -> None:
    partition, session = mounted_5(4)
    handles = [append(partition) for _ in range(2)]
    partition.feed_data(feed(OWN, handles[0].seq_num, 5))
    partition.append_answered(said(handles[1], verdict))
    for _ in range(5):
        partition.on_tick(100)
    assert len(session.mounts) == 2
    partition.req_ids.raise_generation(3)
    sent = len(session.appends)
    answer(partition, session)
    assert [again(frame) for frame in session.appends[sent:]] == [
        (Repeated(3, 5), ReqId(OWN, 1, 0, handles[1].seq_num))
    ]
    assert session.flushes == []
    partition.feed_data(feed(OWN, handles[1].seq_num, 6))
    assert handles[1].transaction_id == 6


async def test_safety_e6_nothing_is_sent_again_to_a_server_of_an_older_version() -> None:
    partition, session = mounted_5(4)
    handle = append(partition)
    partition.session_lost(cast(StreamSession, session))
    older = Session()
    partition.session_ready(cast(StreamSession, older))
    answer(partition, older)
    assert (older.appends, len(older.flushes)) == ([], 1)
    partition.flush_response(handle.seq_num, 4)
    assert handle.outcome is Outcome.FAILED


async def test_safety_e6_an_append_of_an_older_version_is_sent_again_in_the_newer_one() -> None:
    partition, session = mounted(4)
    handle = append(partition)
    partition.session_lost(cast(StreamSession, session))
    newer = Session()
    newer.version = 5
    partition.session_ready(cast(StreamSession, newer))
    answer(partition, newer)
    assert again(newer.appends[0])[1].seq_num == handle.seq_num


async def test_safety_e6_what_its_caller_gave_up_is_not_sent_again() -> None:
    """It was sent before the mount, and nothing of it has come: it has failed."""
    partition, session = mounted_5(4)
    handle = append(partition)
    handle.given_up = True
    partition.generation_raised()
    answer(partition, session)
    assert len(session.appends) == 1
    assert handle.outcome is Outcome.FAILED


async def test_safety_e1_the_answer_to_a_flush_says_nothing_about_what_was_sent_again_behind_it() -> None:
    partition, session = mounted_5(4)
    handle = append(partition)
    partition.window.flush(cast(StreamSession, session))
    partition.generation_raised()
    answer(partition, session)
    assert len(session.appends) == 2
    partition.flush_response(handle.seq_num, 4)
    assert handle.outcome is None
    partition.window.flush(cast(StreamSession, session))
    partition.flush_response(handle.seq_num, 4)
    assert handle.outcome is Outcome.FAILED


async def test_safety_e6_what_may_be_in_a_part_of_the_log_that_was_skipped_is_looked_for_there() -> None:
    partition, session = mounted_5(4)
    handle = append(partition)
    partition.deactivate()
    partition.activate()
    partition.start_at(90)
    partition.session_ready(cast(StreamSession, session))
    answer(partition, session)
    assert again(session.appends[-1])[0] == Repeated(1, 4)
    partition.append_answered(said(handle, Verdict.COMMITTED, 50))
    assert handle.transaction_id == 50


async def test_safety_e7_an_answer_is_for_its_own_partition_and_client() -> None:
    class Heard:
        client_id = OWN

        def __init__(self) -> None:
            self.session: StreamSession | None = None
            self.answers: list[Answer] = []

        def append_answered(self, answer: Answer) -> None:
            self.answers.append(answer)

    partitions = {0: Heard(), 1: Heard(), 2: Heard()}
    session = StreamSession(Endpoint("server", 1), 1, cast(Any, partitions))
    for number in (0, 1):
        partitions[number].session = session
    channel = cast(Any, SimpleNamespace(version=5))
    answers = [Answer(Verdict.DROPPED, 1, number, 7) for number in (1, 2, 3)]
    for client_id in (OWN, STRANGER):
        frame = encode_answers(client_id, answers, 5)
        session.frame_received(channel, memoryview(frame)[FRAME_HEADER_SIZE:])
    assert [one.answers for one in partitions.values()] == [[], answers[:1], []]


async def test_safety_e5_request_ids_that_are_in_use_move_once_for_all_refusals_of_a_turn() -> None:
    partition, session = mounted_5(4)
    handles = [append(partition) for _ in range(100)]
    again_at_once: list[PendingAppend] = []
    handles[0].on_done = lambda _: again_at_once.append(append(partition))
    due = [partition.append_answered(said(one, Verdict.REQUEST_ID_IN_USE)) for one in handles]
    assert (due[0], any(due[1:]), len(session.mounts)) == (True, False, 1)
    partition.end_turn()
    assert {str(one.error) for one in handles} == {
        "append to partition 0 failed: its request id is in use by another client of this id"
    }
    assert len(session.mounts) == 2
    sent = len(session.appends)
    answer(partition, session)
    (later,) = again_at_once
    assert [again(frame)[1].seq_num for frame in session.appends[sent:]] == [later.seq_num]
    for number in (later.seq_num, session.mounts[1][0].seq_num):
        assert abs(number - handles[0].seq_num) % 2**32 >= NEAR
    assert all(partition.req_ids.gave_out(one.seq_num) for one in (*handles, later))
    assert not partition.append_answered(said(handles[0], Verdict.DROPPED))


async def test_request_ids_that_move_while_a_mount_is_under_way_are_named_by_another_one() -> None:
    """The mount that is answered has named the old ones, and nothing else would say so."""
    partition, session = mounted_5()
    partition.req_ids.raise_generation(2)
    partition.generation_raised()
    partition.feed_data(feed(OWN, partition.req_ids._seq_num + NEAR // 2, 5))  # of another client with our id
    partition.end_turn()
    assert partition.window.numbers_moved
    mounts = len(session.mounts)
    partition.mount_response(session.mounts[-1][0].seq_num, MountState.READY)
    assert (len(session.mounts), partition.window.numbers_moved) == (mounts + 1, False)
    answer(partition, session)
    assert partition.append_answered(said(append(partition), Verdict.REQUEST_ID_IN_USE))


async def test_appends_whose_request_ids_are_in_use_cost_one_mount() -> None:
    log = InProcessLog()
    partition = log.partition(0)
    async with log.client(settings={"client.answeredAppends": True}) as client, asyncio.timeout(20):
        await client.append(partition=0, data=b"x")
        take, refused = partition.append_received, []
        taken = client._open.partitions.streams[0].req_ids._seq_num

        def refuse(
            connection: ClientConnection, append: WireAppend, repeated: Repeated | None = None
        ) -> None:
            if abs(ReqId.unpack(append.req_id).seq_num - taken) % 2**32 < NEAR:
                refused.append(append.req_id)
                refuse_append(connection, append.req_id, Verdict.REQUEST_ID_IN_USE)
            else:
                take(connection, append, repeated)

        mounted = Mock(wraps=partition.mount_received)
        partition.append_received = refuse  # type: ignore[method-assign]
        partition.mount_received = mounted  # type: ignore[method-assign]
        results = await client.append_many([Append(0, b"y")] * 200)
        assert {type(one) for one in results} == {AppendFailedError}
        assert await client.append(partition=0, data=b"z") == Committed(0, 1)
        assert (len(refused), mounted.call_count) == (200, 1)


async def test_what_one_turn_brings_for_a_connection_is_one_frame_and_nothing_overtakes_it() -> None:
    sent: list[bytes] = []
    session = StreamSession(Endpoint("server", 1), 1, {})
    session.channel = cast(Any, SimpleNamespace(version=5, closed=False, send=sent.append))
    session.version = 5
    frames = [encode_append(ReqId(OWN, 1, n, n).pack(), -1, (), (), (), 0, b"-", 5) for n in range(3)]
    for frame in frames:
        assert session.send_append(frame)
    assert sent == []
    session.send_flush(ReqId(OWN, 1, 0, 2))
    assert sent[0] == encode_batch(frames, 5)
    session.send_append(frames[0])
    await asyncio.sleep(0)
    assert sent[2:] == [frames[0]]


async def test_a_close_notice_is_the_reason_of_the_close() -> None:
    notice = CloseNotice(ReqId(OWN, -1, -1, -1), CloseCode.LEAVING, "the server is stopped")
    body = memoryview(CLIENT.encode(notice, 5))[FRAME_HEADER_SIZE:]
    reasons: list[str] = []
    channel = cast(Any, SimpleNamespace(version=5, close=reasons.append))
    endpoint = Endpoint("server", 1)
    StreamSession(endpoint, 1, {}).frame_received(channel, body)
    RpcSession(endpoint, lambda _: None, lambda *_: None).frame_received(channel, body)
    assert reasons == ["the server closed the connection: the server is stopped"] * 2


async def test_who_leaves_a_partition_says_so_since_version_5() -> None:
    for version in (4, 5):
        sent: list[bytes] = []
        session = StreamSession(Endpoint("server", 1), 1, {})
        session.channel = cast(Any, SimpleNamespace(version=version, closed=False, send=sent.append))
        session.version = version
        session.send_unmount(ReqId(OWN, 1, 0, 2))
        assert sent == ([CLIENT.encode(UnmountRequest(ReqId(OWN, 1, 0, 2)), 5)] if version == 5 else [])


async def test_a_large_append_does_not_share_a_frame_with_what_came_before_it() -> None:
    """Else it may be more than a server takes in one frame, again and again."""
    sent: list[bytes] = []
    session = StreamSession(Endpoint("server", 1), 1, {})
    session.channel = cast(Any, SimpleNamespace(version=5, closed=False, send=sent.append))
    session.version = 5
    data = (b"-", b"x" * BATCH_BYTES, b"-")
    frames = [
        encode_append(ReqId(OWN, 1, 0, n).pack(), -1, (), (), (), 0, one, 5) for n, one in enumerate(data)
    ]
    for frame in frames:
        session.send_append(frame)
    await asyncio.sleep(0)
    assert sent == frames


def _skipped(partition: StreamPartition, session: Session) -> None:
    """What was committed up to 90 is not received."""
    partition.deactivate()
    partition.activate()
    partition.start_at(90)
    partition.session_ready(cast(StreamSession, session))
    answer(partition, session)


async def test_safety_e1_a_flush_does_not_fail_what_may_be_in_a_part_of_the_log_that_was_skipped() -> None:
    for version in (4, 5):
        partition, session = mounted_5(4)
        handle = append(partition)
        session.version = version
        _skipped(partition, session)
        if version == 5:
            partition.append_answered(said(handle, Verdict.OVERLOADED, 50))
            partition.window.flush(cast(StreamSession, session))
        partition.flush_response(handle.seq_num, 90)
        assert handle.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("verdict", [Verdict.TOO_LARGE, Verdict.REQUEST_ID_IN_USE])
async def test_what_is_refused_for_good_and_may_be_in_a_skipped_part_of_the_log_is_not_sent_forever(
    verdict: Verdict,
) -> None:
    partition, session = mounted_5(4)
    handle = append(partition)
    _skipped(partition, session)
    partition.append_answered(said(handle, verdict, 5))
    assert handle.outcome is Outcome.UNKNOWN


async def test_safety_e1_a_later_commit_does_not_fail_what_may_be_in_a_skipped_part_of_the_log() -> None:
    partition, session = mounted_5(4)
    handle = append(partition)
    _skipped(partition, session)
    partition.append_answered(said(handle, Verdict.OVERLOADED, 50))
    later = append(partition)
    partition.feed_data(feed(OWN, later.seq_num, 91))
    assert (handle.outcome, later.outcome) == (Outcome.UNKNOWN, Outcome.COMMITTED)
