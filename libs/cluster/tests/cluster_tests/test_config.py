"""Configuration: 0.13.2 keys, spellings, mistakes in one line."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import Field

from waltz_cluster.config.allowed_peers import AllowedPeers, unverified_peers
from waltz_cluster.config.files import flatten, load_file
from waltz_cluster.config.settings import CliSettings, Conflict, RoleSettings, ZooKeeperSettings, role_of
from waltz_cluster.config.unknown_keys import nearest
from waltz_cluster.errors import ConfigError
from waltz_cluster.paths import ClusterPaths

BASE = {"zookeeper.connectString": "zk:2181", "cluster.root": "/waltz", "zookeeper.sessionTimeout": "30000"}


class ExampleSettings(ZooKeeperSettings):
    TLS_PREFIXES: ClassVar[tuple[str, ...]] = ("server.ssl",)
    NO_EFFECT: ClassVar[frozenset[str]] = frozenset({"server.region"})

    port: int = Field(alias="server.port", gt=0, lt=65536)
    cache: bool = Field(default=False, alias="server.cache")


def one_line(error: pytest.ExceptionInfo[ConfigError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert error.value.user_error
    return text


def test_dotted_nested_and_mixed_keys(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("a.b.c: 1\nx: {y.z: '2', w: {v: [1]}}\nempty:\n")
    assert load_file(file) == {"a.b.c": 1, "x.y.z": "2", "x.w.v": [1], "empty": None}
    file.write_text("")
    assert load_file(file) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\na: [", "not valid YAML at line"),
        ("- 1", "must hold keys"),
        ("a.b: 1\na: {b: 2}", "given twice"),
        ("a: 2026-99-99", "not valid YAML: month must be"),
        ("a: !!int x", "not valid YAML: invalid literal"),
        ("a: " + "1" * 5000, "not valid YAML: Exceeds the limit"),
        ("a: " + "[" * 1000, "not valid YAML"),
        ("a: &x {b: *x}", "levels or"),
        (
            "a0: &a0 {x: 1, y: 1}\n"
            + "".join(f"a{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}}}\n" for n in range(1, 40)),
            "levels or",
        ),
    ],
)
def test_unreadable_files(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=expected) as error:
        load_file(file)
    assert str(file) in one_line(error)


@pytest.mark.parametrize(
    ("text", "line", "key", "first"),
    [
        ("a.b: 1\nc: 2\na.b: 3", 3, "a.b", 1),
        ("a:\n  b: 1\n  'b': 2", 3, "b", 2),
        ("a: {b: 1, b: 1}", 1, "b", 1),
        ("a:\n- x: 1\n  x: 2", 3, "x", 2),
    ],
)
def test_a_key_given_twice_is_refused_with_both_lines(
    tmp_path: Path, text: str, line: int, key: str, first: int
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_file(file)
    said = f"{file}, line {line}: the key {key} is given twice (first in line {first})"
    assert one_line(error) == said


def test_what_is_merged_may_be_given_again(tmp_path: Path) -> None:
    """Also where a merge of a merge has changed the inner map before it is made itself."""
    file = tmp_path / "c.yaml"
    file.write_text(
        "base: &base {x: 1, y: 1}\nouter:\n  inner: &inner\n    <<: *base\n    x: 2\nlast:\n  <<: *inner\n  y: 3\n"
    )
    assert load_file(file) == {
        "base.x": 1,
        "base.y": 1,
        "outer.inner.x": 2,
        "outer.inner.y": 1,
        "last.x": 2,
        "last.y": 3,
    }


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file") as error:
        load_file(tmp_path / "nothing.yaml")
    one_line(error)
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_file(tmp_path / "b")


def test_values_may_be_strings() -> None:
    settings = ExampleSettings.from_mapping({**BASE, "server.port": "8000", "server.cache": "true"})
    assert (settings.port, settings.cache, settings.zookeeper_session_timeout_ms) == (8000, True, 30000)
    assert settings.zookeeper_connect_timeout_ms == 10000


def test_unknown_keys_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError) as error:
        ExampleSettings.from_mapping({**BASE, "server.prot": 1}, source="x.yaml")
    assert one_line(error) == "x.yaml: unknown key server.prot; did you mean server.port?"
    with pytest.raises(ConfigError) as error:
        ExampleSettings.from_mapping({**BASE, "server.port": 1, "server.ssl.keystore.location": "x"})
    assert "server.ssl.keyStore.location?" in one_line(error)
    with pytest.raises(ConfigError, match="unknown key") as error:
        ExampleSettings.from_mapping({**BASE, "qqq": 1})
    one_line(error)
    for reserved in ("source", "tls"):
        with pytest.raises(ConfigError, match="unknown key"):
            ExampleSettings.from_mapping({**BASE, "server.port": 1, reserved: "x"})


class StorageExample(ZooKeeperSettings):
    TLS_PREFIXES: ClassVar[tuple[str, ...]] = ("storage.ssl",)

    port: int = Field(alias="storage.port")


class ClientExample(ZooKeeperSettings):
    port: int = Field(alias="client.port")


SERVER_FILE = {**BASE, "server.ssl.enabled": True, "storage.maxBatchSize": 10, "server.port": 1}
STORAGE_FILE = {**BASE, "storage.ssl.enabled": True, "storage.port": 1, "storage.directory": "/data"}
CLIENT_FILE = {**BASE, "client.ssl.enabled": True, "ssl.enabled": True}


@pytest.mark.parametrize(
    ("role", "file", "expected"),
    [
        (
            ExampleSettings,
            STORAGE_FILE,
            (
                "x.yaml is the file of a storage node (it has storage.port), which `waltz-storage` takes; "
                "give a server a file with server.port"
            ),
        ),
        (
            StorageExample,
            SERVER_FILE,
            (
                "x.yaml is the file of a server (it has server.ssl.enabled), which `waltz-server` takes; "
                "give a storage node a file with storage.port"
            ),
        ),
        (
            ExampleSettings,
            CLIENT_FILE,
            (
                "x.yaml is the file of a client (it has client.ssl.enabled), which clients and the `waltz` command take; "
                "give a server a file with server.port"
            ),
        ),
        (
            CliSettings,
            SERVER_FILE,
            (
                "x.yaml is the file of a server (it has server.ssl.enabled), which `waltz-server` takes; "
                "give a client a file with cluster.root and no keys of other roles"
            ),
        ),
    ],
)
def test_a_file_of_another_role_says_whose_it_is(
    role: type[RoleSettings], file: dict[str, object], expected: str
) -> None:
    with pytest.raises(ConfigError) as error:
        role.from_mapping(file, source="x.yaml")
    assert one_line(error) == expected


def test_one_foreign_key_in_a_file_of_the_own_role_is_a_key() -> None:
    with pytest.raises(ConfigError, match=r"unknown key client\.autoMount; it is a key of the client role$"):
        ExampleSettings.from_mapping({**BASE, "server.port": 1, "client.autoMount": True})
    with pytest.raises(ConfigError, match=r"unknown key server\.port; it is a key of the server role$"):
        StorageExample.from_mapping({**BASE, "storage.port": 1, "server.port": 1})
    with pytest.raises(ConfigError, match=r"it is a key of the server and storage roles$"):
        ClientExample.from_mapping({**BASE, "storage.maxProtocolVersion": 1, "client.port": 1})


def test_missing_and_wrong_values_name_the_key() -> None:
    with pytest.raises(ConfigError) as error:
        ExampleSettings.from_mapping(BASE)
    assert one_line(error) == "settings: the key server.port is required"
    for key, value in (
        ("server.port", "many"),
        ("server.port", 0),
        ("cluster.root", "waltz"),
        ("server.port", [1]),
    ):
        with pytest.raises(ConfigError) as error:
            ExampleSettings.from_mapping({**BASE, "server.port": 1, key: value})
        assert key in one_line(error)
    with pytest.raises(ConfigError) as error:
        ExampleSettings.from_mapping({**BASE, "server.port": 1, "server.ssl.enabled": "perhaps"})
    assert "server.ssl.enabled" in one_line(error)
    with pytest.raises(ConfigError, match=r"server\.port is required"):
        ExampleSettings.from_mapping({**BASE, "server.port": None})


def test_keys_without_effect_are_accepted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ExampleSettings.from_mapping(
            {**BASE, "server.port": 1, "server.region": "x", "server.ssl.keyManager.algorithm": "SunX509"}
        )
    assert "server.region is accepted but has no effect" in caplog.text
    assert "server.ssl.keyManager.algorithm is accepted but has no effect" in caplog.text


def test_tls_settings() -> None:
    settings = ExampleSettings.from_mapping(
        {
            **BASE,
            "server.port": 1,
            "server.ssl.keyStore.location": "/k.pem",
            "server.ssl.keyStore.password": "secret",
            "server.ssl.trustStore.type": "PKCS12",
            "server.ssl.verifyHostName": "false",
        }
    )
    tls = settings.tls_settings("server.ssl")
    assert (tls.enabled, tls.key_store, tls.key_store_password) == (True, "/k.pem", "secret")
    assert (tls.trust_store_type, tls.verify_host_name, tls.allow_unverified) == ("PKCS12", False, False)
    assert settings.tls_settings("storage.ssl").enabled


def test_tools_share_their_file_with_clients() -> None:
    settings = CliSettings.from_mapping(
        {
            "zookeeper.connectString": "zk",
            "cluster.root": "/w",
            "client.autoMount": True,
            "ssl.allowUnverified": True,
        }
    )
    assert settings.zookeeper_session_timeout_ms == 30000
    assert settings.tls_settings("ssl").allow_unverified


def test_credentials(tmp_path: Path) -> None:
    def make(**more: object) -> ZooKeeperSettings:
        return ZooKeeperSettings.from_mapping({**BASE, **more})

    assert make().credentials() is None
    assert make(**{"zookeeper.auth": "u:p"}).credentials() == ("digest", "u:p")
    (tmp_path / "auth").write_text("user:word\n")
    by_file = {"zookeeper.auth.file": str(tmp_path / "auth")}
    assert make(**by_file).credentials() == ("digest", "user:word")
    with pytest.raises(ConfigError, match="not both"):
        make(**by_file, **{"zookeeper.auth": "u:p"}).credentials()
    with pytest.raises(ConfigError, match="cannot read"):
        make(**{"zookeeper.auth.file": str(tmp_path / "none")}).credentials()
    (tmp_path / "auth").write_text("\nuser:word\n")  # else anybody had the same: none
    with pytest.raises(ConfigError, match=r"zookeeper\.auth\.file: the first line of .* is empty"):
        make(**by_file).credentials()
    assert "p" not in repr(make(**{"zookeeper.auth": "p"}).zookeeper_auth_scheme)
    assert "sesame" not in repr(make(**{"zookeeper.auth": "u:sesame"}))
    for store in ("keyStore", "trustStore"):
        assert "sesame" not in repr(make(**{f"zookeeper.ssl.{store}.password": "sesame"}))


def test_flatten_keeps_lists_and_refuses_doubles() -> None:
    assert flatten({"a": {"b": 1}, "c": [1]}, source="x") == {"a.b": 1, "c": [1]}
    with pytest.raises(ConfigError, match=r"x: the key a\.b is given twice"):
        flatten({"a": {"b": 1}, "a.b": 1}, source="x")


def test_roots() -> None:
    assert ClusterPaths("/a/b/c").ancestors == ("/a", "/a/b")
    assert ClusterPaths("/a").ancestors == ()
    for wrong in ("", "/", "a", "/a/", "//a", "/a/../b"):
        with pytest.raises(ConfigError):
            ClusterPaths(wrong)


def test_a_role_without_zookeeper() -> None:
    class Plain(RoleSettings):
        size: int = Field(default=1, alias="size")

    assert Plain.from_mapping({}).size == 1
    assert Plain.keys() == ["size"]


def test_every_mistake_is_a_problem_and_the_first_is_the_message() -> None:
    keys = BASE | {"server.port": 0, "server.ssl.enabled": "perhaps", "server.prot": 1, "cluster.root": "x"}
    with pytest.raises(ConfigError) as error:
        ExampleSettings.from_mapping(keys, source="f")
    named = ("server.prot", "server.ssl.enabled", "cluster.root", "server.port")
    assert len(error.value.problems) == len(named)
    assert all(name in line for name, line in zip(named, error.value.problems, strict=True))
    assert one_line(error) == error.value.problems[0]


class Together(ZooKeeperSettings):
    TLS_PREFIXES: ClassVar[tuple[str, ...]] = ("server.ssl",)

    port: int = Field(alias="server.port", gt=0)
    least: int = Field(default=1, alias="server.least")
    most: int = Field(default=9, alias="server.most")
    names: AllowedPeers = Field(default=None, alias="server.ssl.allowedPeers")

    def conflicts(self) -> Iterator[Conflict]:
        if self.least > self.most:
            yield Conflict(("server.least", "server.most"), "the least is above the most")
        yield from unverified_peers("server.ssl.allowedPeers", self.names, self.tls_settings("server.ssl"))


LEAST, PEERS = "f: settings: the least is above the most", "f: settings: server.ssl.allowedPeers needs"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"server.least": 10}, [LEAST]),
        ({"server.least": 10, "server.ssl.allowedPeers": ["a"]}, [LEAST, PEERS]),
        # Whatever else is wrong, they are found
        ({"server.least": 10, "server.port": 0}, ["f: server.port = 0", LEAST]),
        ({"server.least": 10, "server.port": None}, ["f: the key server.port is required", LEAST]),
        ({"server.least": 10, "x": 1, "cluster.root": "x"}, ["f: unknown key x", "f: cluster.root", LEAST]),
        ({"server.ssl.allowedPeers": ["a"], "server.ssl.verifyHostName": "x"}, ["f: server.ssl.verifyHostName", PEERS]),
        # but for those of a key that is wrong, or that was probably meant
        ({"server.least": 10, "server.most": "many"}, ["f: server.most = 'many'"]),
        ({"server.least": 10, "server.mots": 20}, ["f: unknown key server.mots; did you mean server.most?"]),
        ({"server.ssl.allowedPeers": ["a"], "server.ssl.enabled": "x"}, ["f: server.ssl.enabled"]),
        ({"server.ssl.allowedPeers": ["a"], "server.ssl.truststore.location": "x"}, ["f: unknown key server.ssl.truststore.location"]),
    ],
)  # fmt: skip
def test_every_mistake_that_needs_no_guess_is_found_at_once(
    keys: dict[str, object], expected: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        Together.from_mapping({**BASE, "server.port": 1, **keys}, source="f")
    assert len(error.value.problems) == len(expected), error.value.problems
    for line, start in zip(error.value.problems, expected, strict=True):
        assert line.startswith(start)


def test_what_is_right_is_there_where_something_else_is_wrong() -> None:
    checked = Together.checked({**BASE, "server.port": "x", "server.least": "3", "server.most": "y"})
    settings = checked.settings
    assert (settings.least, settings.most, settings.zookeeper_session_timeout_ms) == (3, 9, 30000)
    assert checked.wrong == {"server.port", "server.most"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("server.prot", "server.port"),
        ("sever.port", "server.port"),
        ("SERVER.PORT", "server.port"),
        ("server.lockTableSize", "server.optimisticLockTableSize"),
        ("server.jety.port", "server.jetty.port"),
        ("zookeeper.alc", "zookeeper.acl"),
        ("zookeeper.conectString", "zookeeper.connectString"),
        ("client.autoMount", None),
        ("storage.directory", None),
        ("server.foo", None),
        ("client.port", None),
        ("port", None),
        ("", None),
    ],
)
def test_a_name_is_near_only_if_it_is_like_what_is_its_own_in_another(
    name: str, expected: str | None
) -> None:
    known = [
        "zookeeper.connectString", "zookeeper.sessionTimeout", "zookeeper.acl", "cluster.root", "server.port",
        "server.jetty.port", "server.optimisticLockTableSize", "storage.maxBatchSize", "storage.ssl.keyStore.type",
    ]  # fmt: skip
    assert nearest(name, known) == expected
    assert nearest(name, []) is None


@pytest.mark.parametrize(
    ("keys", "whose"),
    [
        (["zookeeper.connectString", "cluster.root"], None),
        (["storage.maxBatchSize", "server.port"], "a server"),
        (["storage.segment.size.threshold"], "a storage node"),
        (["ssl.enabled"], "a client"),
    ],
)
def test_whose_file_it_is(keys: list[str], whose: str | None) -> None:
    assert role_of(keys) == whose


@pytest.mark.parametrize("name", ["zk..example", "a" * 64 + ".example", "zk example"])
def test_a_name_that_can_be_no_host_is_refused(name: str) -> None:
    """The codec of host names raises for it wherever it is looked up: one of several ended every start."""
    with pytest.raises(ConfigError, match=f"zookeeper.connectString = .*'{name}' is no host name"):
        CliSettings.from_mapping({**BASE, "zookeeper.connectString": f"[::1]:2181,zk:2181,{name}:2181/x"})
