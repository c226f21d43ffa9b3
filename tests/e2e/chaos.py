"""Kills the operator at random times, again and again, until asked to stop."""

from __future__ import annotations

import random
import threading
from types import TracebackType
from typing import Self

from tests.e2e.kubectl import Kubectl
from tests.e2e.shell import CommandError

OPERATOR = "app.kubernetes.io/name=waltz-operator"
LEASE = "waltz-operator"
FIRST_SECONDS = (1.0, 12.0)
"""From the beginning of a scenario to the first kill: in the middle of what was just asked for."""
BETWEEN_SECONDS = (30.0, 120.0)
"""From the moment at which the next operator acts to the moment at which it is killed: anywhere in its
work."""
_WAYS = (("--grace-period=0", "--force"), ("--grace-period=1",), ("--grace-period=1",))
"""As a crash between any two of its writes, when the next operator waits for the Lease to run out (one in
three: that takes 20 s); or with just the time to give it back."""
_LOOK_SECONDS = 1.0


class OperatorKiller:
    """`with OperatorKiller(...)`: a thread that ends with the block. `kills` counts what worked."""

    def __init__(self, kubectl: Kubectl, seed: int) -> None:
        self.kills = 0
        self._kubectl = kubectl
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="operator-killer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        pause = FIRST_SECONDS
        while not self._stop.wait(self._random.uniform(*pause)):
            pause = BETWEEN_SECONDS
            try:
                holder = self._holder()
                self._kubectl("delete", "pods", "-l", OPERATOR, *self._random.choice(_WAYS), "--wait=false")
                self.kills += 1
                self._wait_for_another(holder)
            except CommandError:
                continue  # a node is down: the next time

    def _holder(self) -> str:
        """Who holds the operator's Lease."""
        return str(self._kubectl.get("lease", LEASE)["spec"].get("holderIdentity", ""))

    def _wait_for_another(self, before: str) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            if self._holder() not in ("", before):
                return
