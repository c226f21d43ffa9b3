"""With which credentials the roles open their sessions with ZooKeeper: those of a person's Secret, or those
that the operator makes for a managed ensemble, in one of three levels.

A pod shows its level in an annotation; pods of two neighbouring levels work together, so a cluster moves from
one level to the next by the usual restarts, one pod at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.metadata import ZOOKEEPER_LOGIN
from waltz_operator.api.topology import zookeeper_secret

SECRET_KEY = "zookeeper.auth"
"""Key of the operator's own Secret: the name of the setting, as `spark-on-k8s` has its secret options."""


class Level(IntEnum):
    """What a role does in a managed ZooKeeper. Invariant of the cluster: while a znode is closed to others,
    every role is at `SHARED` at least; while a role is at `OWN`, every role is at `SHARED` at least."""

    NONE = 0
    """It has no credentials, and creates znodes that everybody may use."""
    SHARED = 1
    """It has credentials, and creates znodes that everybody may use."""
    OWN = 2
    """It has credentials, and creates znodes that only these may use."""

    @property
    def shown(self) -> str:
        """As the status and an annotation have it."""
        return self.name.capitalize()

    @classmethod
    def parse(cls, text: str) -> Level:
        """The other way; what is not known is none."""
        return next((level for level in cls if level.shown == text), cls.NONE)


class Login(NamedTuple):
    """Credentials in a Secret, and the permissions of the znodes that are created."""

    secret_name: str
    key: str
    scheme: str
    acl: str


def login_of(cluster: WaltzCluster, level: Level = Level.NONE) -> Login | None:
    """How a role logs in. `level`: in a managed ensemble with credentials of the operator."""
    auth = cluster.spec.zookeeper.auth
    if auth is not None:
        return Login(auth.secret_name, auth.key, auth.scheme, auth.acl)
    if level is Level.NONE:
        return None
    acl = "creator" if level is Level.OWN else "open"
    return Login(zookeeper_secret(cluster), SECRET_KEY, "digest", acl)


def login_annotations(level: Level) -> dict[str, str]:
    """Of a pod: none without credentials, as every earlier release made it."""
    return {} if level is Level.NONE else {ZOOKEEPER_LOGIN: level.shown}


def level_of(annotations: Mapping[str, str]) -> Level:
    """The level that a pod, or a template, shows."""
    return Level.parse(str(annotations.get(ZOOKEEPER_LOGIN, "")))
