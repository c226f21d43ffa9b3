"""Takes secrets out of what goes into a support bundle. Pure.

Objects of kind Secret never get this far. What else may hold one: configuration keys (key store passwords,
credentials for ZooKeeper), environment variables, annotations with the object as it was applied, addresses
with a password in them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

REMOVED = "<removed>"
_WORDS = re.compile(
    r"passw|secret|token|credential|api[-_]?key|private|zookeeper\.auth$|(^|[._-])auth$", re.IGNORECASE
)
_NAMES_ONLY = re.compile(
    r"(secret|token).*(name|names|ref|refs)$|imagepullsecrets|pullsecrets|clientsecret$|serviceaccounttoken",
    re.IGNORECASE,
)
_LINE = re.compile(r"^(\s*[\"']?([\w.\-/]+)[\"']?\s*[:=]\s*)(\S.*)$")
_ADDRESS = re.compile(r"(\w+://[^\s/:@]+):[^\s/@]+@")
_PEM = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)
_BEARER = re.compile(r"(bearer\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def redact(value: Any, name: str = "") -> Any:
    """A JSON value without secrets; everything else as it was."""
    if isinstance(value, Mapping):
        if "name" in value and "value" in value and _secret(str(value["name"])):
            return {**value, "value": REMOVED}  # an environment variable
        return {key: redact(inner, str(key)) for key, inner in value.items() if key != _APPLIED}
    if isinstance(value, list):
        return [redact(inner, name) for inner in value]
    if isinstance(value, str):
        return REMOVED if _secret(name) and value else redact_text(value)
    return value


def redact_text(text: str) -> str:
    """The same for text: log lines, configuration files."""
    text = _PEM.sub(REMOVED, text)
    text = _BEARER.sub(rf"\1{REMOVED}", _ADDRESS.sub(rf"\1:{REMOVED}@", text))
    return "\n".join(_line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    found = _LINE.match(line)
    if found is not None and _secret(found.group(2)):
        return f"{found.group(1)}{REMOVED}"
    return line


def _secret(name: str) -> bool:
    return bool(_WORDS.search(name)) and not _NAMES_ONLY.search(name)
