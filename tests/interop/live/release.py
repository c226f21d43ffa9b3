"""The compiled release 0.13.2: where it is, and the command lines of its programs."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SETTING = "WALTZ_RELEASE_0_13_2"

MAIN = {
    "storage": "com.wepay.waltz.storage.WaltzStorage",
    "server": "com.wepay.waltz.server.WaltzServer",
    "ZooKeeperCli": "com.wepay.waltz.tools.zk.ZooKeeperCli",
    "StorageCli": "com.wepay.waltz.tools.storage.StorageCli",
    "ServerCli": "com.wepay.waltz.tools.server.ServerCli",
    "ClusterCli": "com.wepay.waltz.tools.cluster.ClusterCli",
    "ClientCli": "com.wepay.waltz.tools.client.ClientCli",
}
_HEAP = "-Xmx768m"
_QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_COMPILE_SECONDS = 120.0

_LOGGING = """\
log4j.rootLogger=WARN, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d{HH:mm:ss.SSS} %-5p [%t] %c{1} - %m%n
"""


class ReleaseMissingError(RuntimeError):
    """The setting names something else than a compiled release, or there is no JDK. The message is one
    line."""


@dataclass(frozen=True)
class Release:
    """`class_path` of the release, `files` is a directory for what is made here (logging settings, the
    compiled load)."""

    class_path: str
    java: str
    files: Path

    @classmethod
    def find(cls, named: str, files: Path) -> "Release":
        """What the setting names; ReleaseMissingError says what is missing."""
        directory = Path(named).resolve()
        parts = [path for path in (directory / "classes",) if path.is_dir()]
        parts += [jar for folder in (directory / "lib", directory) for jar in sorted(folder.glob("*.jar"))]
        if not parts:
            raise ReleaseMissingError(f"{SETTING}={named}: there is no classes/ and no jar in it")
        java, javac = shutil.which("java"), shutil.which("javac")
        if java is None or javac is None:
            raise ReleaseMissingError(
                f"{SETTING} is set, but there is no JDK on the PATH (java and javac, 17 or newer)"
            )
        files.mkdir(parents=True, exist_ok=True)
        found = cls(os.pathsep.join(str(part) for part in (files / "load", *parts)), java, files)
        found._prepare(javac)
        return found

    def _prepare(self, javac: str) -> None:
        self.logging.write_text(_LOGGING)
        source = Path(__file__).with_name("Load.java")
        command = [javac, "-nowarn", "-cp", self.class_path, "-d", str(self.files / "load"), str(source)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_COMPILE_SECONDS)
        if done.returncode:
            raise ReleaseMissingError(
                f"{SETTING}: its classes are not those of 0.13.2: {' '.join(done.stderr.split())[:300]}"
            )

    def process(self, kind: str, config: Path) -> list[str]:
        """A storage node or a server ("storage", "server") that runs until it is ended."""
        return [*self._java(MAIN[kind]), str(config)]

    def load(self, config: Path, name: str) -> list[str]:
        """`Load.java`: writes and reads until its standard input ends."""
        return [*self._java("Load"), str(config), name]

    def tool(self, name: str, *arguments: str) -> list[str]:
        """One of its seven command line tools."""
        return [*self._java(MAIN[name]), *arguments]

    @property
    def logging(self) -> Path:
        """Its settings of log4j: warnings, on standard error."""
        return self.files / "log4j.properties"

    def _java(self, main: str) -> list[str]:
        settings = f"-Dlog4j.configuration=file:{self.logging}"
        return [self.java, _HEAP, *_QUICK, settings, "-cp", self.class_path, main]
