"""What only an extra of this distribution brings: one sentence where it is missing."""

from __future__ import annotations

import importlib.util

from waltz_protocol.extras import with_extra
from waltz_tools.errors import ToolError


def require(sentence: str, extra: str, *modules: str) -> None:
    """ToolError with the sentence and the extra to install, unless all modules are there."""
    if any(importlib.util.find_spec(module) is None for module in modules):
        raise ToolError(f"{sentence}: {with_extra('waltz-tools', extra)}")


def explained(error: ModuleNotFoundError) -> Exception:
    """The error itself, or a sentence for the module that commands import when they read a node's files."""
    if (error.name or "").partition(".")[0] != "waltz_storage":
        return error
    return ToolError(
        "this command reads the files of a storage node with waltz-storage, which is not installed: "
        + with_extra("waltz-tools", "disk")
    )
