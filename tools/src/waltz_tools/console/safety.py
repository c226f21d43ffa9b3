"""Who may ask the console: the name that it was called by, the page that asks, and the token.

A browser may be led to any address by any page (a forged request), and to this one by a name that was given
another address meanwhile (DNS rebinding). So a request has to name an address, localhost or a name that was
allowed; it has to come from one of our pages; and it needs a session, which costs the token.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from hmac import compare_digest

MAX_SESSIONS = 64
SESSION_SECONDS = 12 * 3600.0

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every answer: nothing but our own files runs or is loaded, nobody frames a page, nothing is kept."""


def why_host_refused(host: str | None, allowed: Collection[str]) -> str:
    """Why a request that names this host is refused; empty when it is not. An address cannot be rebound: only
    names have to be allowed."""
    if not host:
        return "the request names no host"
    name = _without_port(host)
    if name == "localhost" or name in {one.lower() for one in allowed}:
        return ""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return f"the name {name!r} is not one of this console: start it with --allow-host {name} if it is"
    return ""


def _without_port(host: str) -> str:
    text = host.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    name, colon, port = text.rpartition(":")
    return name if colon and port.isdigit() else text


def why_origin_refused(headers: Mapping[str, str], scheme: str, *, changes: bool) -> str:
    """Why a request was made by a page that is not ours; empty when it was not. `changes`: what is asked for
    may change something, so the browser has to name the page."""
    site = headers.get("Sec-Fetch-Site")
    if site is not None and site not in ("same-origin", "none"):
        return "another site's page made this request"
    origin = headers.get("Origin")
    own = {f"{one}://{headers.get('Host', '')}" for one in (scheme, "https")}  # a proxy may add TLS
    if origin is not None and origin not in own:
        return f"a page of {origin} made this request"
    if changes and origin is None and site is None:
        return "the request does not name the page that made it"
    return ""


class Sessions:
    """Those who presented the token. Owner: the console; its requests open and ask for sessions.

    Bounded: the oldest session ends when there are too many, and each ends after some hours.
    """

    def __init__(self, token: str, clock: Callable[[], float]) -> None:
        self._token = token.encode()
        self._clock = clock
        self._until: OrderedDict[str, float] = OrderedDict()

    def is_token(self, text: str) -> bool:
        """In a time that does not depend on how much of it is right."""
        return compare_digest(text.encode(), self._token)

    def open(self) -> str:
        """A new session's secret name."""
        while len(self._until) >= MAX_SESSIONS:
            self._until.popitem(last=False)
        name = secrets.token_urlsafe(32)
        self._until[name] = self._clock() + SESSION_SECONDS
        return name

    def knows(self, name: str | None) -> bool:
        """Whether this session is open."""
        if name is None or name not in self._until:
            return False
        if self._until[name] < self._clock():
            del self._until[name]
            return False
        return True

    def close(self, name: str | None) -> None:
        """End a session; harmless when it is not one."""
        if name is not None:
            self._until.pop(name, None)
