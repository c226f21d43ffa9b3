"""Configuration files of every role. First byte: the role. The rest is the file.

Short inputs only: the time PyYAML takes grows with the square of the depth of brackets. The files are the
operator's own.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.fuzz.target import Target
from waltz_client.settings import ClientSettings
from waltz_cluster.config.settings import CliSettings, RoleSettings, TlsFileSettings
from waltz_cluster.errors import ConfigError
from waltz_server.settings import ServerSettings
from waltz_storage.settings import StorageSettings

ROLES: tuple[type[RoleSettings], ...] = (
    ServerSettings,
    StorageSettings,
    ClientSettings,
    CliSettings,
    TlsFileSettings,
)


@cache
def _file() -> tuple[tempfile.TemporaryDirectory[str], Path]:
    directory = tempfile.TemporaryDirectory(prefix="waltz-fuzz-")
    return directory, Path(directory.name, "waltz.yml")


def check(data: bytes) -> None:
    if not data:
        return
    logging.getLogger("waltz_cluster.config.settings").disabled = True
    role, path = ROLES[data[0] % len(ROLES)], _file()[1]
    path.write_bytes(data[1:])
    try:
        settings = role.from_file(path)
    except ConfigError as error:
        text = str(error)
        assert "\n" not in text, "a mistake is one line"
        return
    for prefix in role.TLS_PREFIXES:
        settings.tls_settings(prefix)


COMMON = "zookeeper.connectString: a:2181\nzookeeper.sessionTimeout: 30000\ncluster.root: /w\n"


def seeds() -> Iterator[bytes]:
    texts = (
        COMMON + "server.ssl.keyStore.location: k.pem\nserver:\n  port: '55180'\n",
        COMMON + "storage:\n  directory: /d\n  port: 55180\n  ssl:\n    enabled: false\n",
        COMMON + "client.ssl: {trustStore.location: t, trustStore.type: JKS}\n",
        "zookeeper: {connectString: 'a', sessionTimeout: 1}\ncluster.root: w\n",
        "ssl.enabled: maybe\n",
        "a: &x [1, 2]\nb: *x\nc: {<<: {d: 1}, e: null}\n",
        "- a\n- b: |\n    text\n",
        "k: 2001-01-01T00:00:00Z\n1.5: 0x1F\ntrue: 1_000\n",
        "--- !!map {? a : b}\n...\n%YAML 1.1\n---\n",
        "",
    )
    for text in texts:
        for role in range(len(ROLES)):
            yield bytes((role,)) + text.encode()


TARGET = Target(
    check,
    seeds,
    memory_bytes=8 << 20,
    memory_factor=8192,
    max_input_bytes=512,
)
