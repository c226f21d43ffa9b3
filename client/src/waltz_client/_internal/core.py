"""What a client is made of, and in which order it begins and ends.

`partitions` is what everything else works on; `appender` (appends with an outcome) and `submissions`
(transaction contexts) use it, feeds and ranges get their `readers` and the `rpc` client from it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

from waltz_client._internal.appender import Appender
from waltz_client._internal.applier import Applier
from waltz_client._internal.contexts import Submissions
from waltz_client._internal.discovery import Discovery
from waltz_client._internal.life import ClientLife
from waltz_client._internal.link import LinkSettings
from waltz_client._internal.observers import Observers
from waltz_client._internal.partitions import Partitions
from waltz_client._internal.producer import Producer
from waltz_client._internal.req_ids import ReqIdSources
from waltz_client._internal.rpc.client import RpcClient
from waltz_client._internal.stream.links import StreamLinks
from waltz_client.callbacks import WaltzClientCallbacks
from waltz_client.errors import UsageError
from waltz_client.observer import ClientObserver, ClientStatus
from waltz_client.settings import ClientSettings
from waltz_protocol.backoff import Random
from waltz_protocol.codec import NEWEST_OF_0_13_2
from waltz_protocol.frames.compressed_blocks import BlockExpander

DRAIN_POLL_SECONDS = 0.01
"""What is under way ends in many places; a closing client asks all of them, and has nothing else to do."""


class ClientCore:
    """Owner of everything that lives as long as the client; runs on one loop."""

    def __init__(
        self,
        settings: ClientSettings,
        discovery: Discovery,
        client_id: int,
        callbacks: WaltzClientCallbacks | None,
        link_settings: LinkSettings,
        random: Random,
        wall_clock: Callable[[], float] = time.time,
        observers: Sequence[ClientObserver] = (),
        producer: Producer | None = None,
        expander: BlockExpander | None = None,
    ) -> None:
        """`expander`: if compressed blocks are asked for."""
        self.client_id = client_id
        self.producer = producer
        self.cluster_name = discovery.cluster_params.name
        self.cluster_key = discovery.cluster_key
        self.drains = 0
        """Closes that let others end, now."""
        self._discovery = discovery
        self._remove_listener: Callable[[], None] | None = None
        self.life = life = ClientLife(client_id)
        watchers = Observers.of(observers)
        req_ids = ReqIdSources(client_id, random)
        stream_settings = (
            link_settings
            if settings.answered_appends or producer is not None
            else link_settings.limited(NEWEST_OF_0_13_2)
        )
        links = StreamLinks(stream_settings, life.spawn, random, watchers)
        self.rpc = RpcClient(
            req_ids,
            link_settings,
            life.spawn,
            random,
            resend_seconds=settings.request_resend_ms / 1000,
            expander=expander,
        )
        self.partitions = Partitions(
            settings,
            discovery.cluster_params.num_partitions,
            life,
            req_ids,
            links,
            self.rpc,
            callbacks,
            random,
            watchers,
            on_stopped_applier=self._applier_stopped,
            producer=producer,
        )
        self.appender = Appender(settings, self.partitions, life, random, watchers, producer)
        self.submissions = Submissions(settings, self.partitions, life, random, wall_clock, watchers)

    @property
    def status(self) -> ClientStatus:
        """See `WaltzClient.status`."""
        return ClientStatus(self.partitions.status(), self.submissions.retrying, self.life.closing)

    def check_unnumbered(self) -> None:
        """UsageError for a named producer."""
        if self.producer is not None:
            raise UsageError(
                "a named producer appends with sequence numbers: use append, or a client without a name here"
            )

    def start(self) -> None:
        """Begin to follow discovery; with callbacks and auto-mount, take part in all partitions."""
        self.life.spawn(self.rpc.run_timer(), "rpc deadlines")
        self.life.spawn(self.partitions.run_ticks(), "nudges")
        self.submissions.start()
        self._remove_listener = self._discovery.add_endpoints_listener(self.partitions.follow)
        self.partitions.start()
        if self.producer is not None:
            self.producer.start(self.life.spawn, self.partitions.note_marks, self.partitions.fence)

    async def drain(self, seconds: float) -> bool:
        """Take no new appends, and let those under way end, for at most so long. Whether they all have; False
        as well when somebody else has closed the client meanwhile."""
        life = self.life
        life.closing = True
        self.drains += 1
        try:
            async with asyncio.timeout(seconds):
                while life.appends or self.partitions.has_pending() or self.submissions.busy:
                    await asyncio.sleep(DRAIN_POLL_SECONDS)
                    if life.closed:
                        return False
        except TimeoutError:
            return False
        finally:
            self.drains -= 1
        return True

    async def drained(self) -> None:
        """When no drain is under way."""
        while self.drains:
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    async def close(self) -> None:
        """End everything: pending appends are unknown, readers and waiters get ClientClosedError.
        Idempotent. Whatever one part raises, the others end too."""
        if self.life.closed:
            return
        self.life.end()
        async with AsyncExitStack() as stack:  # what is entered last ends first
            if self.producer is not None:
                stack.push_async_callback(self.producer.close)
            stack.push_async_callback(self.life.cancel_tasks)
            stack.push_async_callback(self.submissions.close)
            stack.callback(self.rpc.close)
            stack.callback(self.partitions.close)
            if self._remove_listener is not None:
                stack.callback(self._remove_listener)

    def _applier_stopped(self, applier: Applier) -> None:
        self.submissions.report_committed(applier)
