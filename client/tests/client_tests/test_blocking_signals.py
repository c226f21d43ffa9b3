"""A signal handler may call a blocking client, and close it, wherever it interrupts a call or a close of the
same thread. It is run here where CPython looks for signals: at the entry of a function, and around a call."""

import itertools
import logging
import sys
import threading
from collections.abc import Callable
from types import FrameType

import pytest

from waltz_client import ClientClosedError
from waltz_client._internal.loop_thread import LoopThread
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.testing import InProcessLog

FILES = ("blocking.py", "blocking_reads.py", "loop_thread.py")


class Interruption:
    """Runs a job in a thread, and a handler on top of it at the n-th position in these modules."""

    def __init__(self, job: Callable[[], object], handler: Callable[[], object], number: int) -> None:
        self.errors: list[BaseException] = []
        self.handled = False
        self._positions = itertools.count()
        self._number = number
        self._handler = handler
        self._job = job
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._thread.join(10)
        self.hangs = self._thread.is_alive()

    def _run(self) -> None:
        sys.setprofile(self._at)
        try:
            self._job()
        except BaseException as error:
            self.errors.append(error)
        finally:
            sys.setprofile(None)

    def _at(self, frame: FrameType, event: str, what: object) -> None:
        """Python calls it for no event of the handler."""
        if self.handled or event not in ("call", "c_call", "c_return"):
            return
        if frame.f_code.co_filename.endswith(FILES) and next(self._positions) == self._number:
            self.handled = True
            try:
                self._handler()
            except BaseException as error:
                self.errors.append(error)


async def question() -> int:
    return 7


def test_a_handler_closes_a_client_that_is_being_closed() -> None:
    """It cuts the drain off, and both return."""
    for number in itertools.count():
        log = InProcessLog(1)
        client = BlockingWaltzClient.connect({"client.mockDriver": log}).__enter__()
        client.writable(0, deadline_seconds=10)
        log.partition().hold()
        client.append_nowait(partition=0, data=b"x", on_done=lambda append: None)
        answers: list[bool] = []
        closing = Interruption(
            lambda client=client, answers=answers: answers.append(client.close(drain_seconds=0.3)),  # type: ignore[misc]
            client.close,
            number,
        )
        assert not closing.hangs, f"both wait after a signal at position {number}"
        assert not closing.errors, f"{closing.errors} after a signal at position {number}"
        assert answers == [False] or closing.handled
        assert client._thread._thread is not None
        assert not client._thread._thread.is_alive()
        if not closing.handled:
            break
    assert number > 20


def test_a_handler_calls_a_client_that_is_being_called() -> None:
    thread = LoopThread()
    thread.start()
    for number in itertools.count():
        answers: list[int] = []

        def call(answers: list[int] = answers) -> None:
            answers.append(thread.call(question()))

        calling = Interruption(call, call, number)
        assert not calling.hangs, f"both wait after a signal at position {number}"
        assert not calling.errors
        assert answers == [7] * (1 + calling.handled)
        if not calling.handled:
            break
    assert number > 10
    thread.end()


def test_a_handler_ends_the_thread_that_is_being_called() -> None:
    for number in itertools.count():
        thread = LoopThread()
        thread.start()
        calling = Interruption(lambda thread=thread: thread.call(question()), thread.end, number)  # type: ignore[misc]
        assert not calling.hangs, f"both wait after a signal at position {number}"
        assert all(isinstance(error, ClientClosedError) for error in calling.errors)
        assert not thread._calls
        if not calling.handled:
            break
    assert number > 10
    thread.end()


def test_a_handler_ends_a_thread_that_fails_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    """What the thread does at its end waits for no lock that the interrupted call holds."""
    thread = LoopThread()
    thread.start()

    def fail() -> None:
        raise KeyboardInterrupt

    def interrupted() -> None:
        with thread._lock:  # as of a call
            thread.post(fail)
            thread.end()

    ending = threading.Thread(target=interrupted, daemon=True)
    with caplog.at_level(logging.CRITICAL, "waltz_client"):
        ending.start()
        ending.join(10)
    assert not ending.is_alive()
    with pytest.raises(ClientClosedError, match="KeyboardInterrupt"):
        thread.call(question())
