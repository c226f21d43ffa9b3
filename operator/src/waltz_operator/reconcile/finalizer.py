"""Our finalizer on WaltzClusters and WaltzMigrations: the first write for an object and the last one.

It is the shell's own action, not the planner's: the plan of an object that is being deleted says when its teardown is complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from waltz_operator.reconcile.snapshot import ObjectKey


@dataclass(frozen=True, slots=True)
class SetFinalizer:
    """Put it on the object of this uid, or take it off (``present`` False), which lets the object go."""

    key: ObjectKey
    uid: str
    present: bool
    destructive: ClassVar[bool] = False

    @property
    def writes(self) -> str:
        return f"{self.key.kind}/{self.key.name}/finalizers"

    @property
    def line(self) -> str:
        if self.present:
            return f"put the finalizer on {self.key.kind} {self.key.name}"
        return f"teardown is complete: let {self.key.kind} {self.key.name} go"
