"""What is wrong with the certificates in the Secrets of a cluster, and which pods keep what they are made of,
and are not restarted, meanwhile. Pure.

A process that runs continues with what it has read; one that starts needs what its Secret holds now. So a
Secret that was deleted, to have its certificate issued again, costs nothing as long as no pod is restarted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from waltz_operator.model.reasons import Reason


class CertificateProblem(NamedTuple):
    """Of the certificate of a role. `text` is one line that names the Secret. `holds`: a process that starts
    could not use it."""

    role: str
    reason: Reason
    text: str
    holds: bool = True


_NEEDED = frozenset({"server", "storage", "operator", "zookeeper"})
"""Roles that a storage node or a server which starts has to reach, or be reached by."""


def holding(problems: Iterable[CertificateProblem], component: str) -> CertificateProblem | None:
    """The first one for which pods of the component are left as they are. Servers and storage nodes wait for
    each other's, so that they are changed in their order; the managed ZooKeeper waits for its own alone."""
    needed = {component} if component == "zookeeper" else {component, *_NEEDED}
    return next((one for one in problems if one.holds and one.role in needed), None)
