"""A signal handler may raise in any call of the blocking client: KeyboardInterrupt, or any exception of a
library for time limits. It is raised here where CPython looks for signals: at the entry of a function, and
after a call."""

import contextlib
import itertools
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from waltz_client import Committed, UsageError
from waltz_client._internal.blocking_reads import BlockingFeed, BlockingRangeRead
from waltz_client._internal.loop_thread import LoopThread
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.testing import InProcessLog

FILES = ("loop_thread.py", "blocking_reads.py")


class TimeLimitError(Exception):
    """As `SoftTimeLimitExceeded` of celery."""


IN_FINALIZERS = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine .* was never awaited:RuntimeWarning"
)
"""Python reports what is raised there, and a coroutine that is interrupted on its way to the loop."""
LEAVE = pytest.mark.parametrize("leave", [TimeLimitError, KeyboardInterrupt])


class Signals:
    """Raises once in this thread, where `when` says so."""

    def __init__(self, leave: type[BaseException], when: Callable[[FrameType, str, object], object]) -> None:
        self.raised = False
        self._leave = leave
        self._when = when

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        sys.setprofile(self._at)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _at(self, frame: FrameType, event: str, what: object) -> None:
        if not self.raised and self._when(frame, event, what):
            self.raised = True
            raise self._leave


def _at_event(number: int, first: str) -> Callable[[FrameType, str, object], bool]:
    """The n-th position since this function was entered, 0 for the first one."""
    positions = itertools.count()
    begun = False

    def when(frame: FrameType, event: str, what: object) -> bool:
        nonlocal begun
        begun = begun or (event == "call" and frame.f_code.co_name == first)
        return begun and event in ("call", "c_return") and next(positions) == number

    return when


def _answered(thread: LoopThread) -> int | None:
    """What a call of another thread returns; None when the loop hangs."""
    answers: list[int] = []

    async def answer() -> int:
        return 7

    other = threading.Thread(target=lambda: answers.append(thread.call(answer())), daemon=True)
    other.start()
    other.join(10)
    return answers[0] if answers else None


@IN_FINALIZERS
@LEAVE
def test_a_call_that_is_interrupted_anywhere_leaves_the_loop_to_the_others(
    leave: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    async def question() -> int:
        return 6

    thread = LoopThread()
    thread.start()
    for number in itertools.count():
        signals = Signals(leave, _at_event(number, "call"))
        try:
            with signals.on():
                assert thread.call(question()) == 6
        except leave:
            pass
        assert _answered(thread) == 7, f"the loop hangs after an interruption at position {number}"
        if not signals.raised:
            break
    assert number > 10
    thread.end()
    assert not thread._calls
    assert not caplog.records


@LEAVE
def test_a_call_that_is_interrupted_before_it_began_never_begins(
    leave: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    thread = LoopThread()
    thread.start()
    begun: list[int] = []
    busy = threading.Event()
    thread.post(lambda: busy.wait(10))

    async def question() -> None:
        begun.append(1)

    def when(frame: FrameType, event: str, what: object) -> bool:
        return event == "return" and frame.f_code.co_name == "call_soon_threadsafe"

    with pytest.raises(leave), Signals(leave, when).on():
        thread.call(question())
    busy.set()
    assert _answered(thread) == 7
    thread.end()
    assert not begun
    assert not caplog.records


def _reader(client: BlockingWaltzClient, kind: str) -> BlockingFeed | BlockingRangeRead:
    if kind == "range":
        return client.read_range(0, 0, 2, batch_transactions=1)
    return client.feed(0, until=2)


def _ids(reader: BlockingFeed | BlockingRangeRead, kind: str) -> Iterator[int]:
    if isinstance(reader, BlockingRangeRead):
        for piece in reader:
            yield from (one.transaction_id for one in piece.transactions())
    elif kind == "batches":
        for batch in reader.batches():
            yield from (one.transaction_id for one in batch)
    else:
        for one in reader:
            yield one.transaction_id


@IN_FINALIZERS
@LEAVE
@pytest.mark.parametrize("kind", ["feed", "batches", "range"])
def test_what_is_read_after_an_interruption_anywhere_is_refused_or_has_no_gap(
    leave: type[BaseException], kind: str
) -> None:
    """What an interrupted read was to return is lost."""
    log = InProcessLog(num_partitions=1)
    for _ in range(3):
        log.partition(0).commit(b"x")
    refused = 0
    with BlockingWaltzClient.connect({"client.mockDriver": log}) as client:
        for number in itertools.count():
            reader = _reader(client, kind)
            signals = Signals(leave, _in_reads(number))
            ids: list[int] = []
            while True:
                try:
                    with signals.on():
                        for transaction_id in _ids(reader, kind):
                            ids.append(transaction_id)
                    assert ids == [0, 1, 2], f"a gap after an interruption at position {number}"
                    break
                except leave:
                    continue  # as a program that reads the same feed again
                except UsageError as error:
                    refused += "reading was interrupted" in str(error)
                    break
            with contextlib.suppress(UsageError):
                reader.close()
            assert ids == [0, 1, 2][: len(ids)], f"a gap after an interruption at position {number}"
            if not signals.raised:
                break
    assert ids == [0, 1, 2]
    assert refused > 3


@IN_FINALIZERS
@LEAVE
def test_an_interruption_anywhere_while_a_client_is_entered_leaves_no_thread_behind(
    leave: type[BaseException],
) -> None:
    log = InProcessLog(num_partitions=1)
    for number in itertools.count():
        client = BlockingWaltzClient.connect({"client.mockDriver": log})
        signals = Signals(leave, _at_own_position(number))
        try:
            with signals.on():
                client.__enter__()
        except leave:
            pass
        else:
            assert not signals.raised
            client.close()
        thread = client._thread._thread
        if thread is not None and thread.ident is not None:
            thread.join(10)
            assert not thread.is_alive(), f"it is left behind after an interruption at position {number}"
        assert not client._thread.running
        if not signals.raised:
            break
    assert number > 15


@LEAVE
def test_an_interruption_before_the_thread_has_begun_is_passed_on(
    leave: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(thread: threading.Thread) -> None:
        raise leave

    client = BlockingWaltzClient.connect({"client.mockDriver": InProcessLog()})
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(leave):
        client.__enter__()


def test_a_client_that_is_entered_again_stays_open() -> None:
    with BlockingWaltzClient.connect({"client.mockDriver": InProcessLog()}) as client:
        with pytest.raises(UsageError, match="entered once"):
            client.__enter__()
        assert client.append(partition=0, data=b"x") == Committed(0, 0)


def test_a_thread_that_is_ended_before_it_serves_ends() -> None:
    thread = LoopThread()
    begun, go = threading.Event(), threading.Event()
    serve = thread._serve

    async def late(started: queue.SimpleQueue[BaseException | None]) -> None:
        begun.set()
        go.wait(10)
        await serve(started)

    thread._serve = late  # type: ignore[method-assign]
    starting = threading.Thread(target=thread.start, daemon=True)
    starting.start()
    assert begun.wait(10)
    ending = threading.Thread(target=thread.end, daemon=True)  # as after an interruption of `start`
    ending.start()
    while not thread._ending:
        time.sleep(0.001)
    go.set()
    ending.join(10)
    assert not ending.is_alive()
    starting.join(10)
    assert not thread.running


def _at_own_position(number: int) -> Callable[[FrameType, str, object], bool]:
    """The n-th position in the code of the blocking client, and of nothing that it calls."""
    positions = itertools.count()

    def when(frame: FrameType, event: str, what: object) -> bool:
        own = frame.f_code.co_filename.endswith(("waltz_client/blocking.py", "loop_thread.py"))
        return own and event in ("call", "c_return") and next(positions) == number

    return when


def _in_reads(number: int) -> Callable[[FrameType, str, object], bool]:
    """The n-th position in these modules, and in what they call."""
    positions = itertools.count()

    def when(frame: FrameType, event: str, what: object) -> bool:
        if event not in ("call", "c_return"):
            return False
        inside: FrameType | None = frame
        if event == "call":  # not the entry itself: nothing is read yet
            inside = frame.f_back
        while inside is not None:
            if inside.f_code.co_filename.endswith(FILES):
                return next(positions) == number
            inside = inside.f_back
        return False

    return when


@LEAVE
def test_a_read_that_raised_is_not_an_interrupted_one(leave: type[BaseException]) -> None:
    """Nothing was lost, so the reason is reported again."""
    log = InProcessLog(num_partitions=1)
    log.partition(0).commit(b"x")
    with BlockingWaltzClient.connect({"client.mockDriver": log}) as client:

        def refuse(header: int) -> bool:
            raise leave("of the test")

        with client.feed(0, where=refuse, until=0) as feed:
            with pytest.raises(Exception, match="of the test"):
                next(feed)
            assert next(feed, None) is None  # and no UsageError
