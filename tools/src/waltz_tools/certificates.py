"""Certificates of a cluster of machines as files: an authority, and one folder per process with what the
configuration keys take (`tls.crt`, `tls.key`, `ca.crt`). The keys and certificates are made in
`waltz_admin.authority`.

    DIRECTORY/authority/ca.crt, ca.key          signs; previous.crt while another one is still trusted
    DIRECTORY/h1/tls.crt, tls.key, ca.crt       goes to the machine of h1 as it is

Owner of the directory: one command at a time. Each file is replaced by a rename, so a process that reads it
meanwhile gets the old one or the new one; keys are their user's alone. A key that exists is only ever
replaced by `renew`. A process that ends between the key and its certificate leaves two that do not belong
together: `show` and `init` name them, and `renew` makes both again.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from waltz_admin.authority import (
    CertificateInfo,
    KeyPair,
    TlsMaterialError,
    can_sign,
    describe,
    issue,
    lacks_of_key,
    make_authority,
    split,
)
from waltz_tools.errors import ToolError, UsageError

DAY_SECONDS = 86_400.0
AUTHORITY_DAYS = 3650.0
AUTHORITY = "authority"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = re.compile(
    r"(?=.{1,253}$)(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*\.?"
)


class CertificateRole(StrEnum):
    """What a certificate is for. Its common name is what `allowedPeers` names; a client's is its own name."""

    SERVER = "server"
    STORAGE = "storage"
    CLIENT = "client"
    TOOLS = "tools"

    def common_name(self, name: str) -> str:
        return name if self is CertificateRole.CLIENT else f"waltz-{self.value}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A certificate to be made: the folder's name, and the host names and addresses that it is good for."""

    role: CertificateRole
    name: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """A certificate as it is; `days` until it expires, less than 0 after that. `problem`: what is wrong with
    the key next to it, empty for nothing."""

    name: str
    path: Path
    info: CertificateInfo
    days: float
    signed_by: str
    problem: str


def parse_wanted(role: CertificateRole, text: str) -> Wanted:
    """`NAME` or `NAME=HOST,HOST`; UsageError. Without hosts the name is the host."""
    name, equals, listed = text.partition("=")
    if not _NAME.fullmatch(name) or name == AUTHORITY:
        raise UsageError(f"{name!r} cannot be the name of a folder: give letters, digits, '.', '_' and '-'")
    hosts = tuple(dict.fromkeys(host.strip() for host in listed.split(","))) if equals else (name,)
    for host in hosts:
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)
            continue
        if not _HOST.fullmatch(host):
            raise UsageError(f"{host!r} in {text!r} is neither a host name nor an address")
    return Wanted(role, name, hosts)


class CertificateFolder:
    """The directory of one cluster. `now`: seconds since the epoch. ToolError, OSError."""

    def __init__(self, path: Path, now: float) -> None:
        self.path = path
        self._now = now
        self._authority = path / AUTHORITY

    @property
    def exists(self) -> bool:
        """Whether there is an authority."""
        return (self._authority / "ca.crt").exists()

    def names(self) -> list[str]:
        """The folders with a certificate."""
        if not self.exists:
            raise ToolError(
                f"{self._authority} has no ca.crt: `waltz tls init {self.path}` makes an authority"
            )
        return sorted(found.parent.name for found in self.path.glob("*/tls.crt"))

    # -- making ----------------------------------------------------------------------------------------------

    def init(self, cluster: str | None, wanted: Sequence[Wanted], days: float) -> list[str]:
        """An authority unless there is one, which then has to be the cluster's if one is named, and what is
        wanted and not there yet; the names that were made."""
        _check_days(days)
        if self.exists:
            self._check_trusted()
            if cluster is not None:
                self._check_authority(cluster)
        missing = [each for each in wanted if not self._is_there(each)]
        if not self.exists:
            strays = [
                path for path in (self._authority / "ca.key", *self.path.glob("*/tls.*")) if path.exists()
            ]
            if strays:
                raise ToolError(
                    f"{strays[0]} exists without {self._authority / 'ca.crt'}: give an empty directory"
                )
            self._write_authority(
                make_authority(f"{cluster or 'waltz'} authority", self._now, AUTHORITY_DAYS * DAY_SECONDS)
            )
        signer = self._signer() if missing else None
        for each in missing:
            if signer is not None:
                self._issue(signer, each.name, each.role.common_name(each.name), each.hosts, days)
        return [each.name for each in missing]

    def renew(self, names: Iterable[str], days: float) -> list[str]:
        """Another key and certificate for each name (none: all), for the same hosts. ToolError while a folder
        does not trust the present authority."""
        _check_days(days)
        self._check_trusted()
        signer, chosen = self._signer(), self._chosen(names)
        described = {name: describe_file(self.path / name / "tls.crt") for name in chosen}
        for name, info in described.items():
            self._issue(signer, name, info.common_name, info.names, days)
        return chosen

    def replace_authority(self, cluster: str | None) -> None:
        """Step one of three: another authority, trusted by everybody alongside the one before. Certificates
        stay as they are. One that was interrupted is completed."""
        if late := self._late():
            self._trust(late)
            return
        names, before = self.names(), self._read(self._authority / "ca.crt")
        previous = self._authority / "previous.crt"
        if (
            previous.exists() and previous.read_bytes() != before
        ):  # the same: an interrupted run has written it
            raise ToolError(
                f"{previous} is still trusted: an authority is being replaced already; "
                f"renew the certificates, then `waltz tls renew {self.path} --drop-old-authority`"
            )
        if cluster is None:
            cluster = describe_file(self._authority / "ca.crt").common_name.partition(" authority")[0]
        _write((previous, before, 0o644))
        self._write_authority(make_authority(f"{cluster} authority", self._now, AUTHORITY_DAYS * DAY_SECONDS))
        self._trust(names)

    def drop_old_authority(self) -> None:
        """Step three: only the present authority is trusted. ToolError while a certificate is not its."""
        names = self.names()
        own = describe_file(self._authority / "ca.crt").key_id
        others = [n for n in names if describe_file(self.path / n / "tls.crt").issuer_key_id != own]
        if others:
            raise ToolError(
                f"{', '.join(others)}: signed by the authority of before; renew them first, and copy them to "
                "their machines"
            )
        (self._authority / "previous.crt").unlink(missing_ok=True)
        self._trust(names)

    def authority_days(self) -> float:
        """How long the authority is valid; what it signs ends with it."""
        return (describe_file(self._authority / "ca.crt").not_after - self._now) / DAY_SECONDS

    # -- showing ---------------------------------------------------------------------------------------------

    def show(self) -> list[Shown]:
        """The authority, and every certificate."""
        previous = self._authority / "previous.crt"
        paths = [self.path / name / "tls.crt" for name in self.names()]
        paths = [self._authority / "ca.crt", *([previous] if previous.exists() else ()), *paths]
        return show_files(paths, self._now)

    # -- inside ----------------------------------------------------------------------------------------------

    def _check_trusted(self) -> None:
        """ToolError while there is a folder that does not trust the present authority."""
        if late := self._late():
            raise ToolError(
                f"{', '.join(late)}: does not trust the present authority, since its replacement was interrupted; complete "
                f"the first step with `waltz tls renew {self.path} --new-authority`, and copy the folders before anything is issued"
            )

    def _check_authority(self, cluster: str) -> None:
        name = describe_file(self._authority / "ca.crt").common_name
        if not f"{cluster} authority".startswith(name.rpartition(" ")[0] or name):  # it may be cut
            raise ToolError(
                f"the authority in {self._authority} is that of {name}, not that of a cluster {cluster}: leave "
                "--cluster out to use it, or give another directory"
            )

    def _is_there(self, wanted: Wanted) -> bool:
        path = self.path / wanted.name / "tls.crt"
        if not path.exists():
            return False
        if problem := _key_problem(path):
            raise ToolError(
                f"{path}: {problem}; `waltz tls renew {self.path} {wanted.name}` makes both again"
            )
        info = describe_file(path)
        if info.common_name == wanted.role.common_name(wanted.name) and set(info.names) == set(wanted.hosts):
            return True
        raise ToolError(
            f"{path} is for {info.common_name} ({', '.join(info.names)}), not for what is wanted now: "
            f"move the folder {path.parent} away to have another one made"
        )

    def _chosen(self, names: Iterable[str]) -> list[str]:
        there = self.names()
        chosen = list(dict.fromkeys(names)) or there
        unknown = [name for name in chosen if name not in there]
        if unknown:
            raise UsageError(
                f"{self.path} has no certificate of {', '.join(unknown)}; it has {', '.join(there)}"
            )
        return chosen

    def _signer(self) -> KeyPair:
        self.names()
        pair = KeyPair(self._read(self._authority / "ca.crt"), self._read(self._authority / "ca.key"))
        if not can_sign(pair, self._now):
            raise ToolError(
                f"the authority in {self._authority} cannot sign: it is not valid now, or its key is not its own; "
                f"`waltz tls renew {self.path} --new-authority` makes another one"
            )
        return pair

    def _issue(self, signer: KeyPair, name: str, common_name: str, hosts: Sequence[str], days: float) -> None:
        folder = self.path / name
        _make_folder(folder)
        pair = issue(signer, common_name, hosts, self._now, days * DAY_SECONDS)
        _write(
            (folder / "ca.crt", self._bundle(), 0o644),
            (folder / "tls.key", pair.key, 0o600),
            (folder / "tls.crt", pair.certificate, 0o644),
        )

    def _write_authority(self, pair: KeyPair) -> None:
        _make_folder(self.path)
        _make_folder(self._authority)
        _write(
            (self._authority / "ca.key", pair.key, 0o600),
            (self._authority / "ca.crt", pair.certificate, 0o644),
        )

    def _late(self) -> list[str]:
        """While an authority is being replaced: the folders that do not trust both yet."""
        previous, present = self._authority / "previous.crt", self._authority / "ca.crt"
        names = self.names()
        if not previous.exists() or previous.read_bytes() == self._read(present):
            return []
        bundle, files = self._bundle(), {name: self.path / name / "ca.crt" for name in names}
        return [name for name, file in files.items() if not file.exists() or file.read_bytes() != bundle]

    def _trust(self, names: Iterable[str]) -> None:
        for name in names:
            _write((self.path / name / "ca.crt", self._bundle(), 0o644))

    def _bundle(self) -> bytes:
        previous = self._authority / "previous.crt"
        return self._read(self._authority / "ca.crt") + (self._read(previous) if previous.exists() else b"")

    def _read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise ToolError(f"{path} is not there: copy it back from where the authority is kept") from None


def describe_file(path: Path) -> CertificateInfo:
    """The first certificate of a PEM file; ToolError, OSError."""
    try:
        return describe(path.read_bytes(), str(path))
    except TlsMaterialError as error:
        raise ToolError(str(error)) from None


def show_files(paths: Sequence[Path], now: float) -> list[Shown]:
    """Each certificate; of a file with authorities each of these. ToolError, OSError."""
    shown = []
    known: dict[bytes, str] = {}
    for path in paths:
        of_authority = path.name in ("ca.crt", "previous.crt")
        every = split(path.read_bytes()) if of_authority else ()
        for info in [describe(one, str(path)) for one in every] or [describe_file(path)]:
            if info.key_id == info.issuer_key_id:
                known[info.key_id] = info.common_name
            signed_by = known.get(info.issuer_key_id, "another authority")
            days = (info.not_after - now) / DAY_SECONDS
            shown.append(Shown(path.parent.name, path, info, days, signed_by, _key_problem(path)))
    return shown


def _make_folder(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _check_days(days: float) -> None:
    if days > AUTHORITY_DAYS:
        raise UsageError(
            f"a certificate cannot be valid for {days:g} days: it ends with its authority, which is made for "
            f"{AUTHORITY_DAYS:g} days"
        )


def _key_problem(certificate: Path) -> str:
    """What is wrong with the key next to a certificate (that of `tls.crt` is `tls.key`); empty where nothing
    is known: it is elsewhere, this user may not read it, or it has a password. OSError."""
    file = certificate.with_suffix(".key")
    try:
        key = file.read_bytes()
    except OSError:
        return ""
    lacks = "" if b"ENCRYPTED" in key else lacks_of_key(key, certificate.read_bytes())
    return f"{file.name} is no private key that {lacks}" if lacks else ""


def _write(*files: tuple[Path, bytes, int]) -> None:
    """Each (path, content, mode) at once, by a rename, with the permissions from the first byte on. All of
    them are on disk before the first is replaced: an error, or an interrupt while they are written, leaves
    what was there."""
    with contextlib.ExitStack() as undo:
        prepared = []
        for path, content, mode in files:
            beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            undo.callback(beside.unlink, missing_ok=True)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            prepared.append((beside, path))
        for beside, path in prepared:
            os.replace(beside, path)
