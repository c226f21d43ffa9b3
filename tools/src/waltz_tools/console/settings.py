"""What a console is started with, and what it refuses to be started with."""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass

from waltz_tools.errors import UsageError

MIN_TOKEN_CHARACTERS = 16
DEFAULT_PORT = 8090


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """`host`, `port`: where it listens; port 0 takes a free one. `token`: what a browser has to present.

    `allowed_hosts`: names, besides addresses and localhost, by which browsers may call it. `config`: the
    configuration file as it was named, for the commands that pages show. `certificate`, `key`: PEM files,
    both or none.
    """

    token: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    allowed_hosts: tuple[str, ...] = ()
    allow_data: bool = True
    allow_append: bool = False
    interval_seconds: float = 2.0
    question_seconds: float = 2.0
    config: str = "client.yaml"
    certificate: str | None = None
    key: str | None = None

    @property
    def scheme(self) -> str:
        return "https" if self.certificate else "http"


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_reach(host: str, *, has_token_file: bool, has_tls: bool, allow_plaintext: bool) -> None:
    """UsageError unless an address that others reach is protected: by a token that was given, and by TLS."""
    if is_loopback(host):
        return
    if not has_token_file:
        raise UsageError(
            f"others reach {host}: name a file with a token (--token-file) that its users have, or listen on 127.0.0.1"
        )
    if not has_tls and not allow_plaintext:
        raise UsageError(
            f"others reach {host}, and a listener would learn the token: give --tls-certificate and --tls-key, or pass "
            "--allow-plaintext behind a proxy that has TLS"
        )


def check_token(text: str, source: str) -> str:
    """The token in a file's text; UsageError when it is too short to be one."""
    token = text.strip()
    if len(token) < MIN_TOKEN_CHARACTERS or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"{source} holds no token: one line of at least {MIN_TOKEN_CHARACTERS} printable characters without spaces"
        )
    return token


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(24)
