"""`waltz config check`: whose file it is, every mistake, and nothing else."""

import builtins
import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from waltz_admin.authority import issue, make_authority
from waltz_runtime.exit_code import ExitCode
from waltz_tools.__main__ import run
from waltz_tools.certificates import DAY_SECONDS
from waltz_tools.local import configs

COMMON = configs.common_keys(21_000, 4_000)


def _check(
    capsys: pytest.CaptureFixture[str], path: Path, *options: str, code: int = ExitCode.OK
) -> dict[str, list[str]]:
    capsys.readouterr()
    assert run(["config", "check", str(path), "--output", "json", *options]) == code
    found: dict[str, list[str]] = json.loads(capsys.readouterr().out)
    return found


def _file(directory: Path, **keys: object) -> Path:
    path = directory / "x.yaml"
    path.write_text(yaml.safe_dump(keys, sort_keys=False))
    return path


def _server(**keys: object) -> dict[str, object]:
    return configs.server_keys(COMMON, {"server": 1, "http": 2}, tls=True) | keys


def _storage(directory: Path) -> dict[str, object]:
    return configs.storage_keys(COMMON, {"storage": 1, "admin": 2, "http": 3}, directory, tls=True)


def test_the_files_of_a_local_cluster_are_right_and_recognised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = {
        "server": _server(),
        "storage": _storage(tmp_path),
        "client tools": configs.client_keys(COMMON, True),
        "client": {**COMMON, "client.ssl.allowUnverified": True},
        "tools": {**COMMON, "ssl.enabled": False},
    }
    for roles, keys in of.items():
        path = tmp_path / "role.yaml"
        path.write_text(yaml.safe_dump(keys))
        found = _check(capsys, path)
        assert (found["roles"], found["errors"], found["warnings"]) == (roles.split(), [], []), roles


def test_every_mistake_is_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {"server.jetty.portt": 1, "server.minFetchSize": "many", "server.ssl.enabled": "perhaps"}
    path = _file(tmp_path, **_server(**wrong, **{"server.region": "x", "server.log.josn": True}))
    found = _check(capsys, path, code=ExitCode.DEGRADED)
    assert [line.split(" = ")[0].removeprefix("unknown key ") for line in found["errors"]] == [
        "server.jetty.portt; did you mean server.jetty.port?",
        "server.log.josn; did you mean server.log.json?",
        "server.ssl.enabled",
        "server.minFetchSize",
    ]
    assert found["warnings"] == ["server.region is accepted but has no effect"]


def test_mistakes_of_every_kind_are_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files are opened although a key is unknown, and each store although the other is not there."""
    wrong: dict[str, object] = {
        "server.jety.port": 8001,
        "client.autoMount": True,
        "server.minFetchSize": 2000,
        "server.ssl.allowedPeers": ["a"],
        "server.transactionDataCacheAllocation": "mmap",
        "zookeeper.auth.file": str(tmp_path / "auth"),
        "storage.ssl.keyStore.location": str(tmp_path / "key"),
        "storage.ssl.trustStore.location": str(tmp_path / "trust"),
    }
    without = {key: value for key, value in _server().items() if not key.startswith("storage.ssl.")}
    path = _file(tmp_path, **(without | wrong))
    errors = _check(capsys, path, code=ExitCode.DEGRADED)["errors"]
    missing = ("zookeeper.auth.file", "storage.ssl.trustStore.location", "storage.ssl.keyStore.location")
    starts = [
        "unknown key server.jety.port; did you mean server.jetty.port?",
        "unknown key client.autoMount; it is a key of the client role",
        "server.transactionDataCacheAllocation = 'mmap'",
        "settings: server.minFetchSize must be less",
        "settings: server.ssl.allowedPeers needs",
    ]
    assert len(errors) == len(starts) + len(missing), errors
    assert all(line.startswith(start) for line, start in zip(errors, starts, strict=False))
    assert all(name in line for line, name in zip(errors[len(starts) :], missing, strict=True))
    assert len(_check(capsys, path, "--keys-only", code=ExitCode.DEGRADED)["errors"]) == len(starts)


def test_a_file_whose_key_is_not_certain_is_not_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = _storage(tmp_path) | {"storage.ssl.keyStore.location": "/no", "storage.ssl.enabled": "perhaps"}
    path = _file(tmp_path, **keys, **{"zookeeper.auth.file": "/no", "zookeeper.auth.fiel": "/yes"})
    errors = _check(capsys, path, code=ExitCode.DEGRADED)["errors"]
    assert [line.partition(" = ")[0] for line in errors] == [
        "unknown key zookeeper.auth.fiel; did you mean zookeeper.auth.file?",
        "storage.ssl.enabled",
    ]


def test_a_certificate_that_has_expired_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process starts with it: it may be renewed at any moment."""
    authority = make_authority("authority", time.time() - 2 * DAY_SECONDS, 10 * DAY_SECONDS)
    pair = issue(authority, "server", ["h1"], time.time() - 2 * DAY_SECONDS, DAY_SECONDS)
    (tmp_path / "server.pem").write_bytes(pair.key + pair.certificate)
    path = _file(tmp_path, **_server(**{"server.ssl.keyStore.location": str(tmp_path / "server.pem")}))
    (warning,) = _check(capsys, path)["warnings"]
    place = f"{tmp_path / 'server.pem'} (server.ssl.keyStore.location)"
    assert warning.startswith(f"the certificate {place} expired on 20")


def test_what_concerns_two_keys_is_named_when_each_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _file(tmp_path, **_server(**{"server.jetty.port": 1}))
    found = _check(capsys, path, code=ExitCode.DEGRADED)
    assert found["errors"] == ["settings: server.port and server.jetty.port must differ"]


def test_files_that_it_names_are_opened_unless_they_are_on_another_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = _storage(tmp_path / "missing") | {"storage.ssl.keyStore.location": str(tmp_path / "tls")}
    path = _file(
        tmp_path,
        **keys,
        **{"zookeeper.auth.file": str(tmp_path / "secret"), "zookeeper.ssl.trustStore.location": "/no"},
    )
    found = _check(capsys, path, code=ExitCode.DEGRADED)
    assert [next(k for k in ("auth.file", "zookeeper.ssl", "storage.directory", "keyStore") if k in e) for e in found["errors"]] == [
        "auth.file", "zookeeper.ssl", "storage.directory", "keyStore",
    ]  # fmt: skip
    assert _check(capsys, path, "--keys-only")["errors"] == []


@pytest.mark.parametrize("options", [(), ("--keys-only",)])
@pytest.mark.parametrize(
    ("acl", "auth", "reason"),
    [
        ("creator", None, "zookeeper.acl = creator needs zookeeper.auth or zookeeper.auth.file"),
        ("creator", "", "zookeeper.acl = creator needs zookeeper.auth or zookeeper.auth.file"),
        ("creatr", "a:b", "zookeeper.acl: 'creatr' is not open, creator"),
        ("creator", "a:b", None),
    ],
)
def test_permissions_with_which_nothing_connects(
    acl: str, auth: str | None, reason: str | None, options: tuple[str, ...],
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = _file(
        tmp_path, **_server(**{"zookeeper.acl": acl, **({} if auth is None else {"zookeeper.auth": auth})})
    )
    found = _check(capsys, path, *options, code=ExitCode.DEGRADED if reason else ExitCode.OK)
    assert [error.startswith(str(reason)) for error in found["errors"]] == ([True] if reason else [])


def test_the_role_can_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _file(tmp_path, **_storage(tmp_path))
    (error,) = _check(capsys, path, "--role", "server", code=ExitCode.DEGRADED)["errors"]
    assert error.startswith(
        "it is the file of a storage node (it has storage.port), which `waltz-storage` takes"
    )
    (error,) = _check(capsys, path, "--role", "client", code=ExitCode.DEGRADED)["errors"]
    assert "storage node" in error


def test_the_file_of_an_application_that_names_servers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {"servers": ["a:1", "b:2"], "client.ssl.enabled": False}
    path = _file(tmp_path, **keys)
    found = _check(capsys, path)
    assert found["errors"] == []
    path = _file(tmp_path, **(keys | {"servers": ["a"]}))
    (error,) = _check(capsys, path, code=ExitCode.DEGRADED)["errors"]
    assert "is not an address of the form host:port" in error
    path = _file(tmp_path, **keys, **{"cluster.root": "/demo"})
    (error,) = _check(capsys, path, code=ExitCode.DEGRADED)["errors"]
    assert "give servers, or the keys of ZooKeeper, not both: cluster.root" in error


def test_what_a_person_sees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = _file(tmp_path, **_server())
    assert run(["config", "check", str(path)]) == ExitCode.OK
    assert capsys.readouterr().out.startswith(f"{path} is the file of a server: ")
    path.write_text("cluster.root: /demo\n")
    assert run(["config", "check", str(path)]) == ExitCode.DEGRADED
    shown = capsys.readouterr()
    assert "no key shows the role" in shown.out
    assert shown.err == f"Error: {path}: the key zookeeper.connectString is required, and 1 more\n"


@pytest.mark.parametrize("content", [None, "[", "- a list"])
def test_what_is_no_configuration_file_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    path = tmp_path / "x.yaml"
    if content is not None:
        path.write_text(content)
    assert run(["config", "check", str(path)]) == ExitCode.FAILED
    shown = capsys.readouterr()
    assert str(path) in shown.err
    assert shown.err.count("\n") == 1


def test_without_the_service_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **options: Any) -> Any:
        if name.startswith("waltz_server"):
            raise ModuleNotFoundError("No module named 'waltz_server'", name=name)
        return real(name, *rest, **options)

    path = _file(tmp_path, **_server())
    monkeypatch.setattr(builtins, "__import__", refuse)
    assert run(["config", "check", str(path)]) == ExitCode.FAILED
    assert "waltz-server is installed, and it is not here" in capsys.readouterr().err
