"""`api/config_keys.py` is made from the settings classes of the services; WALTZ_WRITE_DOCS=1 writes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from waltz_cluster.config.settings import RoleSettings
from waltz_cluster.errors import ConfigError
from waltz_operator.api import config_keys
from waltz_operator.api.config_check import OWN_KEYS, check_config
from waltz_operator.resources.config import to_yaml
from waltz_server.settings import ServerSettings
from waltz_storage.settings import StorageSettings

ROLES: dict[str, type[RoleSettings]] = {"storage": StorageSettings, "server": ServerSettings}
HEAD = '''"""Configuration keys of the roles, made from the settings classes of the services by
`operator/tests/operator_tests/api/test_config_keys.py` (WALTZ_WRITE_DOCS=1 writes it again)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What a value must be; any: the key has no effect."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ANY = "any"


class Key(NamedTuple):
    """One key. `above`: the minimum itself is not allowed. `minimum` of a text: its length. `words`: the
    values of a text, if they are few. `host`: a text that is a host."""

    kind: Kind
    minimum: float | None = None
    maximum: float | None = None
    above: bool = False
    words: tuple[str, ...] = ()
    host: bool = False


KEYS: Mapping[str, Mapping[str, Key]] = {
'''
KINDS = {"integer": "INTEGER", "number": "NUMBER", "boolean": "BOOLEAN"}


def of(schema: dict[str, Any]) -> str:
    """The Key of one property."""
    if schema.get("format") == "hostname":
        return "Key(Kind.TEXT, host=True)"
    schema = next((part for part in schema.get("anyOf", ()) if part["type"] != "null"), schema)
    if "enum" in schema:
        return "Key(Kind.TEXT, words=(" + ", ".join(f'"{word}"' for word in schema["enum"]) + "))"
    kind = f"Kind.{KINDS.get(schema['type'], 'TEXT')}"
    above = "exclusiveMinimum" in schema
    minimum = schema.get("exclusiveMinimum", schema.get("minimum", schema.get("minLength")))
    parts = [kind, repr(minimum), repr(schema.get("maximum")), repr(above)]
    while parts[-1] in ("None", "False"):
        parts.pop()
    return f"Key({', '.join(parts)})"


def rendered(path: Path) -> str:
    """The module, with the line breaks that `make check` asks of it."""
    text = HEAD
    for role, settings in ROLES.items():
        properties = settings.model_json_schema(by_alias=True)["properties"]
        text += f'    "{role}": {{\n'
        for key in list(settings.keys()):
            value = of(properties[key]) if key in properties else "Key(Kind.ANY)"
            text += f'        "{key}": {value},\n'
        text += "    },\n"
    command = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(path), "-"]
    return subprocess.run(command, input=text + "}\n", capture_output=True, text=True, check=True).stdout


def test_the_module_is_up_to_date() -> None:
    path = Path(config_keys.__file__)
    if os.environ.get("WALTZ_WRITE_DOCS") == "1":
        path.write_text(rendered(path))
    assert path.read_text() == rendered(path), "run with WALTZ_WRITE_DOCS=1 to write it"


MINIMAL: dict[str, dict[str, object]] = {
    "storage": {
        "zookeeper.connectString": "z:1",
        "zookeeper.sessionTimeout": 1,
        "cluster.root": "/r",
        "storage.port": 1,
        "storage.admin.port": 2,
        "storage.directory": "/d",
    },
    "server": {
        "zookeeper.connectString": "z:1",
        "zookeeper.sessionTimeout": 1,
        "cluster.root": "/r",
        "server.port": 1,
    },
}
VALUES: tuple[object, ...] = (
    True,
    "false",
    0,
    1,
    -1,
    "17",
    2.5,
    "2.5",
    "some text",
    65536,
    10**12,
    "",
    "yes",
    2,
    5.0,
    0.5,
    1e300,
    2**63 - 1,
    2**63,
    2**70,
    "nan",
    "inf",
    "1e400",
    "1e3",
    "1e18",
    "0x10",
    "٣",
    "1.0",
    "1.",
    ".5",
    "+5",
    "1_000",
    "1__0",
    " 5 ",
    "-0",
    "-1",
    "9" * 5000,
    "null",
    "[1]",
    " ",
    "a: b",
    "INFO",
    "warn",
    "t",
    "ON",
    "a..b",
    "a" * 64 + ".example",
)


def refusal(role: str, key: str, value: object) -> str:
    """What the service says against it; empty = it takes it."""
    try:
        read = yaml.safe_load(to_yaml({**MINIMAL[role], key: value}))
        ROLES[role].from_mapping(read)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("role", ROLES)
def test_what_we_let_through_the_role_takes(role: str) -> None:
    """Each key with many values: whatever the check has nothing against, a pod starts with."""
    checked, wrong = 0, []
    for key in list(ROLES[role].keys()):
        for value in VALUES:
            if not list(check_config(role, {key: value})):
                checked += 1
                wrong += [(key, value, error) for error in [refusal(role, key, value)] if error]
    assert wrong == []
    assert checked > 100


def test_a_number_beyond_all_bounds_is_named_like_any_other() -> None:
    assert {key for key, _ in check_config("server", {"server.minFetchSize": 10**400})} == {
        "server.minFetchSize"
    }


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ({"server.minFetchSize": 1000}, "server.minFetchSize"),
        ({"server.minFetchSize": "999"}, ""),
        ({"server.realtimeThreshold": 100}, "server.realtimeThreshold"),
        ({"server.realtimeThreshold": 101}, ""),
        ({"server.realtimeThreshold": 2000, "server.minFetchSize": 2000}, "server.minFetchSize"),
        ({"server.realtimeThreshold": 2001, "server.minFetchSize": 2000}, ""),
        ({"server.realtimeThreshold": "many", "server.minFetchSize": 2000}, "server.realtimeThreshold"),
    ],
)
def test_keys_that_do_not_go_together(config: dict[str, object], wrong: str) -> None:
    assert [key for key, _ in check_config("server", config)] == ([wrong] if wrong else [])
    error = ""
    try:
        ServerSettings.from_mapping({**MINIMAL["server"], **config})
    except ConfigError as e:
        error = str(e)
    assert bool(error) is bool(wrong)


@pytest.mark.parametrize("role", ROLES)
def test_what_the_role_takes_we_let_through(role: str) -> None:
    for key in list(ROLES[role].keys()):
        if any(key == own or key.startswith(f"{own}.") for own in OWN_KEYS[role]):
            continue
        for value in (True, "false", 0, 1, 17, "17", 2.5):
            if refusal(role, key, value):
                continue
            if isinstance(value, bool) and config_keys.KEYS[role][key].kind is not config_keys.Kind.BOOLEAN:
                continue  # Python counts true as 1; nobody means that
            assert not list(check_config(role, {key: value})), (key, value)


def test_mistakes_are_named() -> None:
    config: dict[str, object] = {
        "storage.prot": 1,
        "storage.port": 1,
        "storage.ssl.enabled": False,
        "storage.disk.threads": 0,
        "storage.log.json": "perhaps",
        "storage.maxConnections": "many",
        "storage.segment.size.threshold": 1.5,
        "storage.log.level": "loud",
        "storage.graphite.prefix": 2,
        "storage.graphite.hostname": True,
        "storage.journal.directory": "",
        "storage.disk.reserveBytes": "1e3",
        "storage.segment.cache.capacity": 2**70,
    }
    assert dict(check_config("storage", config)) == {
        "storage.prot": "is not a key of this role; did you mean storage.port?",
        "storage.port": "is set by the operator: it follows from other fields of the specification",
        "storage.ssl.enabled": "is set by the operator: it follows from other fields of the specification",
        "storage.disk.threads": "0: must be greater than 0",
        "storage.log.json": "'perhaps': must be true or false",
        "storage.maxConnections": "'many': must be a number",
        "storage.segment.size.threshold": "1.5: must be a whole number",
        "storage.log.level": "'loud': must be one of DEBUG, INFO, WARNING, WARN, ERROR, CRITICAL, FATAL, NOTSET",
        "storage.graphite.prefix": "2: must be a text; write it in quotes: '2'",
        "storage.graphite.hostname": "True: must be a text; write it in quotes: 'true'",
        "storage.journal.directory": "'': must not be empty",
        "storage.disk.reserveBytes": "'1e3': must be a whole number",
        "storage.segment.cache.capacity": f"{2**70}: must be at most {2**63 - 1}",
    }
    assert dict(check_config("server", {"server.feedCompression": "gzip", "server.log.level": "info"})) == {
        "server.feedCompression": "'gzip': must be one of none, zstd"
    }


def test_the_operators_own_keys_exist() -> None:
    for role, own in OWN_KEYS.items():
        for key in own:
            assert any(known == key or known.startswith(f"{key}.") for known in list(ROLES[role].keys())), key
