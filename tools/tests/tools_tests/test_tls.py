"""`waltz tls`: what it makes is what the settings take, keys are kept, and the authority is replaced without
an outage."""

import builtins
import errno
import json
import os
import re
import ssl
import time
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from waltz_protocol.aio.tls import TlsSettings, certificate_names, client_context, server_context
from waltz_runtime.exit_code import ExitCode
from waltz_tools.__main__ import run
from waltz_tools.certificates import CertificateFolder, CertificateRole, Wanted

NAMES = (
    "--server",
    "h1=127.0.0.1,h1.example.com",
    "--storage",
    "s1",
    "--client",
    "orders",
    "--tools",
    "admin",
)
FOLDERS = ("admin", "h1", "orders", "s1")


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    directory = tmp_path / "tls"
    assert run(["tls", "init", str(directory), "-n", "demo", *NAMES]) == ExitCode.OK
    capsys.readouterr()
    return directory


def _settings(folder: Path) -> TlsSettings:
    return TlsSettings(key_store=str(folder), trust_store=str(folder), prefix="x.ssl")


def _handshake(server: Path, client: Path, host: str) -> tuple[str, ...]:
    """TLS between two folders; the names of the client's certificate. ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    contexts = server_context(_settings(server)), client_context(_settings(client))
    assert contexts[0] is not None
    assert contexts[1] is not None
    sides = [
        contexts[0].wrap_bio(to_server, to_client, server_side=True),
        contexts[1].wrap_bio(to_client, to_server, server_hostname=host),
    ]
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return certificate_names(sides[0].getpeercert())


def _contents(directory: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()
    }


def _shown(capsys: pytest.CaptureFixture[str], path: Path, code: int = ExitCode.OK) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert run(["tls", "show", str(path), "--output", "json"]) == code
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["certificates"]
    return found


def test_every_role_can_talk_to_every_other(made: Path) -> None:
    assert _handshake(made / "h1", made / "orders", "h1.example.com") == ("orders",)
    assert _handshake(made / "h1", made / "admin", "127.0.0.1") == ("waltz-tools", "admin")
    assert _handshake(made / "s1", made / "h1", "s1") == ("waltz-server", "127.0.0.1", "h1.example.com")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _handshake(made / "s1", made / "h1", "s2")


def test_keys_are_their_users_alone(made: Path) -> None:
    assert {p.stat().st_mode & 0o777 for p in made.rglob("*.key")} == {0o600}
    assert {p.stat().st_mode & 0o777 for p in (made, *made.iterdir())} == {0o700}
    assert {str(p.relative_to(made)) for p in made.rglob("*") if p.is_file()} == {
        "authority/ca.crt", "authority/ca.key",
        *(f"{name}/{file}" for name, file in product(FOLDERS, ("tls.crt", "tls.key", "ca.crt"))),
    }  # fmt: skip


def test_init_adds_what_is_missing_and_keeps_what_is_there(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _contents(made)
    capsys.readouterr()
    assert run(["tls", "init", str(made), *NAMES, "--storage", "s2"]) == ExitCode.OK
    assert "\nmade: s2\n" in capsys.readouterr().out
    after = _contents(made)
    assert {name: after[name] for name in before} == before
    assert _handshake(made / "s2", made / "h1", "s2")
    assert run(["tls", "init", str(made), "--server", "h1=other"]) == ExitCode.FAILED
    assert "move the folder" in capsys.readouterr().err
    assert _contents(made) == after


def test_init_names_the_authority_that_it_makes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for said in ("the authority", "nothing, all of it is there"):
        assert run(["tls", "init", str(tmp_path / "tls")]) == ExitCode.OK
        assert f"\nmade: {said}\n" in capsys.readouterr().out


def test_init_takes_no_other_name_for_an_authority_that_is_there(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _contents(made)
    assert run(["tls", "init", str(made), "-n", "prod", "--storage", "s2"]) == ExitCode.FAILED
    error = capsys.readouterr().err
    assert "is that of demo authority " in error
    assert "not that of a cluster prod: leave --cluster out to use it, or give another directory" in error
    assert _contents(made) == before
    assert run(["tls", "init", str(made), "-n", "demo", "--storage", "s2"]) == ExitCode.OK
    long = "a-long-name-" * 8
    for _ in range(2):  # longer than a name in a certificate can be
        assert run(["tls", "init", str(made / "other"), "-n", long]) == ExitCode.OK


def test_without_its_authority_nothing_is_made_over_keys(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (made / "authority" / "ca.crt").unlink()
    before = _contents(made)
    assert run(["tls", "init", str(made), *NAMES]) == ExitCode.FAILED
    assert "ca.key exists without" in capsys.readouterr().err
    assert _contents(made) == before


def test_renew_keeps_the_authority_and_the_others(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = _contents(made)
    assert run(["tls", "renew", str(made), "h1"]) == ExitCode.OK
    changed = {name for name, content in _contents(made).items() if before[name] != content}
    assert changed == {"h1/tls.crt", "h1/tls.key"}
    assert _handshake(made / "h1", made / "orders", "h1.example.com") == ("orders",)
    assert run(["tls", "renew", str(made), "nobody"]) == ExitCode.USAGE
    assert "it has admin, h1, orders, s1" in capsys.readouterr().err


def test_another_authority_in_three_steps_without_an_outage(made: Path, tmp_path: Path) -> None:
    """Whatever part of the machines has the folders of a step and whatever part those of the step before,
    each can talk to each."""
    steps = [["--new-authority"], [], ["--drop-old-authority"]]
    generations = [made]
    for number, options in enumerate(steps):
        copied = tmp_path / f"before-{number}"
        copied.mkdir()
        for name, content in _contents(made).items():
            (copied / name).parent.mkdir(exist_ok=True)
            (copied / name).write_bytes(content)
        assert run(["tls", "renew", str(made), *options]) == ExitCode.OK
        for one, other in ((copied, made), (made, copied), (made, made)):
            assert _handshake(one / "s1", other / "h1", "s1")
        generations.append(copied)
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(generations[1] / "s1", made / "h1", "s1")  # as it was before the first step


def test_steps_in_the_wrong_order_are_refused(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tls", "renew", str(made), "--new-authority"]) == ExitCode.OK
    before = _contents(made)
    assert run(["tls", "renew", str(made), "--new-authority"]) == ExitCode.FAILED
    assert run(["tls", "renew", str(made), "--drop-old-authority"]) == ExitCode.FAILED
    assert "renew them first" in capsys.readouterr().err
    assert run(["tls", "renew", str(made), "h1", "--new-authority"]) == ExitCode.USAGE
    assert _contents(made) == before


def test_a_new_authority_whose_key_was_written_alone_is_made_again(made: Path) -> None:
    """A crash in the midst of the first step."""
    authority = made / "authority"
    (authority / "previous.crt").write_bytes((authority / "ca.crt").read_bytes())
    (authority / "ca.key").write_bytes((made / "h1" / "tls.key").read_bytes())
    assert run(["tls", "renew", str(made), "h1"]) == ExitCode.FAILED
    assert run(["tls", "renew", str(made), "--new-authority"]) == ExitCode.OK
    assert run(["tls", "renew", str(made)]) == ExitCode.OK
    assert _handshake(made / "s1", made / "h1", "s1")


@pytest.mark.parametrize("written", range(len(FOLDERS)))
def test_a_first_step_that_did_not_end_is_completed_before_anything_is_renewed(
    made: Path,
    tmp_path: Path,
    written: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ended after this many folders trust the new authority."""
    whole = CertificateFolder._trust

    def killed(self: CertificateFolder, names: Iterable[str]) -> None:
        whole(self, list(names)[:written])
        raise KeyboardInterrupt

    monkeypatch.setattr(CertificateFolder, "_trust", killed)
    with pytest.raises(KeyboardInterrupt):
        CertificateFolder(made, time.time()).replace_authority(None)
    monkeypatch.undo()
    before = _contents(made)
    for command in (
        ["renew", str(made)],
        ["renew", str(made), "admin"],
        ["init", str(made), "--server", "h9"],
    ):
        assert run(["tls", *command]) == ExitCode.FAILED
        said = capsys.readouterr().err
        assert f"{', '.join(FOLDERS[written:])}: does not trust the present authority" in said
        assert f"waltz tls renew {made} --new-authority" in said
    assert _contents(made) == before
    assert run(["tls", "renew", str(made), "--new-authority"]) == ExitCode.OK
    assert "Next: copy the folders to their machines; when all have them, run" in capsys.readouterr().out
    after = _contents(made)
    assert {name for name in after if before[name] != after[name]} == {
        f"{n}/ca.crt" for n in FOLDERS[written:]
    }
    assert run(["tls", "renew", str(made), "--new-authority"]) == ExitCode.FAILED
    assert "an authority is being replaced already" in capsys.readouterr().err
    assert run(["tls", "renew", str(made)]) == ExitCode.OK
    for name, content in after.items():
        (tmp_path / "copied" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "copied" / name).write_bytes(content)
    for one, other in ((tmp_path / "copied", made), (made, tmp_path / "copied")):
        assert _handshake(one / "s1", other / "h1", "s1")


def test_what_expires_is_shown(tmp_path: Path, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = _shown(capsys, made)
    assert [each["name"] for each in shown] == ["authority", *FOLDERS]
    (signer,) = {each["signed_by"] for each in shown}
    assert re.fullmatch("demo authority [0-9a-f]{8}", signer)
    assert [each["days"] for each in shown] == [3649, 364, 364, 364, 364]
    assert [each["common_name"] for each in _shown(capsys, made / "h1")] == [signer, "waltz-server"]
    assert [each["hosts"] for each in _shown(capsys, made / "s1" / "tls.crt")] == [["s1"]]

    late = tmp_path / "late"
    wanted = [Wanted(CertificateRole.SERVER, "h1", ("h1",)), Wanted(CertificateRole.SERVER, "h2", ("h2",))]
    CertificateFolder(late, time.time() - 400 * 86_400).init("demo", wanted, 390)
    assert run(["tls", "renew", str(late), "h2", "--days", "20"]) == ExitCode.OK
    assert [each["days"] < 0 for each in _shown(capsys, late, ExitCode.DEGRADED)] == [False, True, False]
    assert run(["tls", "show", str(late)]) == ExitCode.DEGRADED
    assert "2 of 3 certificates" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["init", "D", "--server", "a/b"], "cannot be the name of a folder"),
        (["init", "D", "--server", "authority"], "cannot be the name of a folder"),
        (["init", "D", "--server", "h1=has space"], "neither a host name nor an address"),
        (["init", "D", "--server", "h1="], "neither a host name nor an address"),
        (["init", "D", "--server", "h1", "--storage", "h1"], "named twice"),
        (["renew", "D", "--new-authority", "--drop-old-authority"], "one of them"),
        (
            ["renew", "D", "-n", "prod"],
            "--cluster is the name of a new authority: give it with --new-authority",
        ),
    ],
)
def test_wrong_command_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    directory = tmp_path / "D"
    assert run(["tls", *(str(directory) if each == "D" else each for each in arguments)]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
    assert not directory.exists()


def test_a_renewal_that_is_interrupted_between_key_and_certificate(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No process starts with such a folder: it is named, and renewed with the next attempt."""
    real = os.replace

    def replace(source: Path, target: Path) -> None:
        if target == made / "h1" / "tls.crt":
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as interrupted:
        interrupted.setattr(os, "replace", replace)
        with pytest.raises(KeyboardInterrupt):
            run(["tls", "renew", str(made), "h1"])
    assert not list(made.rglob(".*")), "nothing that was prepared is left"
    for path in (made, made / "h1", made / "h1" / "tls.crt"):
        shown = {each["file"]: each["problem"] for each in _shown(capsys, path, ExitCode.DEGRADED)}
        found = {Path(file): problem for file, problem in shown.items() if problem}
        assert found == {made / "h1" / "tls.crt": "tls.key is no private key that belongs to the certificate"}
    run(["tls", "show", str(made)])
    assert f"{made}/h1/tls.crt: tls.key is no private key that belongs" in capsys.readouterr().err
    assert run(["tls", "init", str(made), "--server", "h1=127.0.0.1,h1.example.com"]) == ExitCode.FAILED
    assert f"tls renew {made} h1` makes both again" in capsys.readouterr().err
    assert run(["tls", "renew", str(made), "h1"]) == ExitCode.OK
    _shown(capsys, made)
    assert run(["tls", "init", str(made), "--server", "h1=127.0.0.1,h1.example.com"]) == ExitCode.OK


def test_a_renewal_prepares_both_files_before_it_replaces_one(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that is full, or an interrupt while it writes, leaves the pair of before."""
    before, real = _contents(made), os.fsync
    synced: list[int] = []

    def sync(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    assert run(["tls", "renew", str(made), "h1"]) == ExitCode.FAILED
    assert _contents(made) == before


@pytest.mark.parametrize("key", ["absent", "unreadable", "with a password"])
def test_a_key_that_cannot_be_compared_is_no_problem(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    file = made / "h1" / "tls.key"
    if key == "absent":
        file.unlink()
    elif key == "unreadable":
        real = Path.read_bytes

        def read(path: Path) -> bytes:
            if path == file:
                raise PermissionError
            return real(path)

        monkeypatch.setattr(Path, "read_bytes", read)
    else:
        private = load_pem_private_key(file.read_bytes(), None)
        locked = BestAvailableEncryption(b"secret")
        file.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    assert {each["problem"] for each in _shown(capsys, made)} == {None}


def test_a_lifetime_beyond_that_of_the_authority_is_refused_or_named(
    made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A certificate ends with its authority."""
    for command in (["init", str(made), "--server", "h2"], ["renew", str(made)]):
        assert run(["tls", *command, "--days", "100000"]) == ExitCode.USAGE
        assert "3650" in capsys.readouterr().err
    assert not (made / "h2").exists()
    assert run(["tls", "renew", str(made), "--days", "3650"]) == ExitCode.OK
    assert "with their authority" not in capsys.readouterr().err
    later = time.time() + 3_500 * 86_400
    monkeypatch.setattr(time, "time", lambda: later)
    for command in (["init", str(made), "--server", "h2"], ["renew", str(made), "--output", "json"]):
        assert run(["tls", *command]) == ExitCode.OK
        said = capsys.readouterr().err
        assert "end with their authority, after 150 days instead of 365" in said
        assert f"tls renew {made} --new-authority`" in said


def test_no_directory_and_no_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tls", "renew", str(tmp_path)]) == ExitCode.FAILED
    assert "`waltz tls init" in capsys.readouterr().err.replace("python -m waltz_tools", "waltz")
    (tmp_path / "x.crt").write_text("nothing")
    assert run(["tls", "show", str(tmp_path / "x.crt")]) == ExitCode.FAILED
    assert "no certificate in PEM form" in capsys.readouterr().err


def test_without_the_library_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **options: Any) -> Any:
        if name == "waltz_tools.certificates":
            raise ModuleNotFoundError("No module named 'cryptography'", name="cryptography")
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert run(["tls", "init", str(tmp_path / "x"), *NAMES]) == ExitCode.FAILED
    assert "the package cryptography, which is not installed here" in capsys.readouterr().err
