"""The log in memory, worked on by a test without an event loop."""

import queue
import time

from waltz_client import PendingAppend
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.testing import InProcessLog


def test_a_test_works_on_the_log_from_its_own_thread() -> None:
    """The client's loop is in another one, and learns of everything at once."""
    log = InProcessLog(1)
    partition = log.partition()
    with BlockingWaltzClient.connect({"client.mockDriver": log}) as client:
        client.writable(0)
        for end in (partition.release, partition.drop, partition.remount):
            partition.hold()
            ended: queue.SimpleQueue[PendingAppend] = queue.SimpleQueue()
            client.append_nowait(partition=0, data=b"x", on_done=ended.put)
            while not partition.waiting:
                time.sleep(0.01)
            end()
            assert ended.get().committed == (end == partition.release)
            partition.release()
            client.writable(0)
        with client.feed(0, after=0) as feed:
            partition.pause_feed()
            partition.commit(b"y")
            partition.resume_feed()
            assert next(feed).data == b"y"
        log.go_down()
        log.come_up()
        partition.withdraw()
        partition.remount()
        assert client.append(partition=0, data=b"z").transaction_id == 2
    assert partition.commit(b"after the client") == 3
