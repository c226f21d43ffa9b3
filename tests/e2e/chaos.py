"""Kills the operator at random times, again and again, until told to stop."""

from __future__ import annotations

import random
import threading
from types import TracebackType
from typing import Self

from tests.e2e.kubectl import Kubectl
from tests.e2e.shell import CommandError

OPERATOR = "app.kubernetes.io/name=waltz-operator"
BETWEEN_SECONDS = (25.0, 70.0)
"""Long enough for the next operator to wait for the Lease of the killed one, and then to do some of its work."""


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
        while not self._stop.wait(self._random.uniform(*BETWEEN_SECONDS)):
            try:
                # No grace: as a crash between any two of its writes.
                self._kubectl("delete", "pods", "-l", OPERATOR, "--grace-period=0", "--force", "--wait=false")
                self.kills += 1
            except CommandError:
                continue  # a node is down: the next time
