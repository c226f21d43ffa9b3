"""Real ZooKeeper: the one module that knows kazoo.

kazoo runs threads of its own. Nothing of ours runs there but the few lines marked "thread": they move the
event to the loop with `call_soon_threadsafe`, in order, with the epoch of the session it belongs to. Every
answered request renews `last_contact`; a heartbeat every sixth of the session timeout keeps it fresh when
nothing else is asked, so that the holder of partitions knows from its own clock when the session may have
ended. A connection on which it has no answer is cut, in time for another server of ZooKeeper: kazoo looks for
a silent one only when it has nothing to send.

Requests are refused while there is no connection (they did not leave), and never repeated.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as zk
from kazoo.client import KazooClient, KazooState, TransactionRequest
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.paths import _prefix_root
from kazoo.protocol.serialization import Create, SetData
from kazoo.retry import ForceRetryError
from kazoo.security import OPEN_ACL_UNSAFE

from waltz_cluster import errors
from waltz_cluster.acl import acl_text, parse_acl
from waltz_cluster.config.settings import ZooKeeperSettings
from waltz_cluster.errors import ConfigError, ConnectError
from waltz_cluster.request_size import check_size
from waltz_cluster.session import OneShotWatch, SessionTracker, create_with_parents, fire_from_thread
from waltz_cluster.store import (
    CheckOp,
    CreateOp,
    DeleteOp,
    Op,
    SessionEvent,
    SessionListener,
    SessionState,
    SetOp,
    Watch,
    ZnodeStat,
)
from waltz_cluster.zk_connection import ConnectionHandler
from waltz_cluster.zk_errors import ANSWERS, map_error
from waltz_protocol.aio.tasks import spawn
from waltz_protocol.errors import TlsSettingsError

_log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger("waltz_cluster.kazoo")
_kazoo_log.setLevel(logging.ERROR)  # what matters of it is logged here, once, as a change of state

_MAX_RETRY_DELAY_SECONDS = 1.0
CLOSE_SECONDS = 2.0
"""So long the end of a session is waited for."""
GIVE_UP_SESSIONS = 2.0
"""Timeouts of the session without an answer, before who gives up does so."""
_HEARTBEAT_SHARE = 1 / 6
_SILENCE_SHARE = 1 / 2
_LAST_LOOK_SHARE = 1 / 24
"""Of a session: a heartbeat begins so long after the last one, and is waited for so long. After that kazoo's
thread gets its turn: it may have the answer in its socket when the whole process was stopped meanwhile."""
_FIRST_WAIT_SHARE = 1 / 12
"""Of a session: so long TLS, and the answer to the first request for it, are waited for, and twice as long
each time that none came. A server may accept a connection and swallow what it is sent (one that is starting,
a frozen process), and one name may lead to all servers; and one that is slow gets its time."""


async def connect(settings: ZooKeeperSettings, *, gives_up: bool = False) -> "KazooStore":
    """Open a session. `gives_up`: one that is refused for longer than it can last counts as ended, and the
    next one sees whatever is there: a ZooKeeper whose data were lost, or are an older copy, refuses those
    who have seen more than it has, for good. Not for who holds partitions, whom that refusal keeps from
    continuing on an older copy. ConfigError for a bad setting; ConnectError when ZooKeeper does not answer
    within `zookeeper.connectTimeout`, with the reason of the last attempt; cancellation closes what was
    begun."""
    credentials = settings.credentials()
    acl = parse_acl(settings.zookeeper_acl, has_credentials=credentials is not None)
    try:
        tls = settings.zookeeper_context()
    except TlsSettingsError as error:
        raise ConfigError(f"{settings.source}: {error}") from None
    servers = settings.zookeeper_connect_string.partition("/")[0].count(",") + 1
    session_seconds = settings.zookeeper_session_timeout_ms / 1000
    # ZooKeeper's own client takes the session timeout divided by the number of servers for each attempt
    handler = ConnectionHandler(tls, session_seconds / servers, session_seconds * _FIRST_WAIT_SHARE)
    try:
        client = KazooClient(
            handler=handler,
            hosts=settings.zookeeper_connect_string,
            timeout=session_seconds,
            connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": _MAX_RETRY_DELAY_SECONDS},
            auth_data=[credentials] if credentials else None,
            default_acl=acl,
            logger=_kazoo_log,
        )
    except (ValueError, zk.KazooException, TypeError) as error:
        raise ConfigError(
            f"zookeeper.connectString {settings.zookeeper_connect_string!r} is not valid: {error}"
        ) from None
    store = KazooStore(client, handler, asyncio.get_running_loop(), gives_up=gives_up)
    try:
        await store.start(settings.zookeeper_connect_timeout_ms / 1000)
    except BaseException:
        await store.close()
        raise
    return store


class KazooStore:
    """A `ZooKeeperStore` on a kazoo client. Owner: whoever called `connect`; single loop."""

    def __init__(
        self,
        client: KazooClient,
        handler: ConnectionHandler,
        loop: asyncio.AbstractEventLoop,
        *,
        gives_up: bool = False,
    ) -> None:
        self._gives_up = gives_up
        self._client = client
        self._handler = handler
        self._loop = loop
        self._tracker = SessionTracker()
        self._last_contact = self._answered_at = loop.time()
        self._closed = False
        self._heartbeat: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        # written by kazoo's connection thread only
        self._thread_epoch = 0
        self._thread_session_id: int | None = None
        self._unknown_hosts: list[str] = []
        self._session_id = 0
        self._timeout_seconds: float = client._session_timeout / 1000
        self._watch_the_handshake()
        client.add_listener(self._state_changed)

    def _watch_the_handshake(self) -> None:
        """kazoo keeps the timeout the server granted in a local variable: read it off the result of its
        connect. And it waits for the answer of a single server as long as the session lasts: see
        `_FIRST_WAIT_SHARE`. And its thread ends by an error that it does not know, which it has logged, and
        nobody would ever be connected again: that is the end of a connection like any other. And it says
        nothing of hosts whose names are not known: the error of `start` names them."""
        handler = self._client._connection
        original, original_invoke = handler._connect, handler._invoke
        original_loop = handler._connect_loop

        def connect_loop(retry: Any) -> Any:  # thread
            try:
                return original_loop(retry)
            except Exception as error:
                raise ForceRetryError(f"after {error!r}") from error

        def invoke(timeout: float, *args: Any, **more: Any) -> Any:  # thread; requests of the handshake
            wait = self._handler.grown(self._timeout_seconds * _FIRST_WAIT_SHARE)
            return original_invoke(min(timeout, wait), *args, **more)

        def connect_and_remember(*args: Any) -> Any:  # thread
            try:
                result = original(*args)
            except KazooTimeoutError:
                self._handler.unanswered()
                raise
            except zk.AuthFailedError as error:  # kazoo would end its thread; another server may take them
                # Each attempt keeps the session alive, and what it holds from those who could use it.
                if self._handler.refuses_credentials(self._silent_seconds() > self._timeout_seconds):
                    raise zk.SessionExpiredError("nobody takes the credentials") from error
                raise zk.ConnectionDropped("it refuses the credentials") from error
            except zk.KazooException as error:
                self._handler.session_refused()
                if self._is_over():
                    raise zk.SessionExpiredError("it is refused for longer than it can last") from error
                raise
            self._handler.session_given()
            self._timeout_seconds = (
                result[0] * 1.5 / 1000
            )  # its read timeout is two thirds of it, in milliseconds
            return result

        expand = handler._expand_client_hosts

        def expand_and_remember() -> Any:  # thread
            found = expand()
            known = {host for host, *_ in found}
            self._unknown_hosts = [host for host, _ in self._client.hosts if host.strip() not in known]
            return found

        handler._connect, handler._invoke = connect_and_remember, invoke
        handler._expand_client_hosts = expand_and_remember
        handler._connect_loop = connect_loop

    def _is_over(self) -> bool:  # thread
        """Whether the session that was refused just now is to be given up."""
        return (
            self._gives_up
            and self._client._session_id is not None
            and self._silent_seconds() > GIVE_UP_SESSIONS * self._timeout_seconds
        )

    def _silent_seconds(self) -> float:  # thread
        return self._loop.time() - self._last_contact

    def _state_changed(self, state: str) -> None:  # thread
        if state == KazooState.CONNECTED:
            client_id = self._client.client_id
            session_id = client_id[0] if client_id else None
            if session_id != self._thread_session_id:
                self._thread_session_id = session_id
                self._thread_epoch += 1
        kind = {
            KazooState.CONNECTED: SessionState.CONNECTED,
            KazooState.SUSPENDED: SessionState.SUSPENDED,
        }.get(state, SessionState.LOST)
        epoch, session_id = self._thread_epoch, self._thread_session_id or 0
        fire_from_thread(self._loop, lambda: self._deliver(kind, epoch, session_id))

    def _deliver(self, state: SessionState, epoch: int, session_id: int) -> None:
        if self._closed:
            return
        if state is SessionState.CONNECTED:
            self._session_id = session_id
            self._connected.set()
        if self._tracker.deliver(SessionEvent(state, epoch, self._last_contact)):
            level = logging.INFO if state is SessionState.CONNECTED else logging.WARNING
            _log.log(level, "ZooKeeper session %d: %s", epoch, state.value)

    async def start(self, timeout_seconds: float) -> None:
        """Connect, then start the heartbeat."""
        self._client.start_async()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._connected.wait()
        except TimeoutError:
            hosts = ",".join(f"{host}:{port}" for host, port in self._client.hosts)
            problems = [self._handler.problem] if self._handler.problem is not None else []
            problems += [f"the host name {host} is not known" for host in self._unknown_hosts]
            raise ConnectError(
                f"ZooKeeper at {hosts} did not answer within {timeout_seconds:g} s"
                + (f": {', and '.join(problems)}" if problems else "")
            ) from None
        self._heartbeat = spawn(self._beat(), "zookeeper-heartbeat")

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._timeout_seconds * _HEARTBEAT_SHARE)
            if self._tracker.state is SessionState.CONNECTED:
                began = self._loop.time()
                try:
                    async with asyncio.timeout(self._timeout_seconds * _SILENCE_SHARE):
                        await self.exists("/")
                except TimeoutError:
                    await asyncio.sleep(self._timeout_seconds * _LAST_LOOK_SHARE)
                    if self._answered_at < began and self._tracker.state is SessionState.CONNECTED:
                        self._handler.cut()
                except Exception as error:  # without heartbeats contact would be lost again and again
                    _log.debug("heartbeat: %r", error)

    @property
    def session_timeout_seconds(self) -> float:
        return self._timeout_seconds

    @property
    def epoch(self) -> int:
        return self._tracker.epoch

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def state(self) -> SessionState:
        return self._tracker.state

    @property
    def last_contact(self) -> float:
        return self._last_contact

    def add_session_listener(self, listener: SessionListener) -> Callable[[], None]:
        return self._tracker.add_listener(listener)

    async def _call(self, what: str, submit: Callable[[], Any], watch: OneShotWatch | None = None) -> Any:
        if self._closed:
            raise errors.SessionLostError(f"{what}: the ZooKeeper session is closed")
        if self._tracker.state is not SessionState.CONNECTED or not self._client.connected:
            if self._handler.credentials_refused:
                raise map_error(zk.AuthFailedError(), what)
            raise errors.ConnectionLostError(f"{what}: not connected to ZooKeeper")
        future: asyncio.Future[Any] = self._loop.create_future()
        started = self._loop.time()

        def settle(result: Any) -> None:
            if result.exception is None or isinstance(result.exception, ANSWERS):
                self._last_contact = max(self._last_contact, started)
                self._answered_at = self._loop.time()
            if future.done():
                return
            if result.exception is not None:
                future.set_exception(map_error(result.exception, what))
            else:
                future.set_result(result.value)

        submit().rawlink(lambda result: fire_from_thread(self._loop, lambda: settle(result)))
        try:
            return await future
        except BaseException:
            if watch is not None:
                watch.cancel()
            raise

    def _watch(self, watch: Watch | None) -> tuple[OneShotWatch | None, Callable[[object], None] | None]:
        if watch is None:
            return None, None
        one_shot = OneShotWatch(watch)
        return one_shot, lambda _event: fire_from_thread(self._loop, one_shot.fire)

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, ZnodeStat]:
        one_shot, callback = self._watch(watch)
        data, stat = await self._call(
            f"get {path}", lambda: self._client.get_async(path, watch=callback), one_shot
        )
        return data, _stat(stat)

    async def get_children(self, path: str, watch: Watch | None = None) -> tuple[list[str], ZnodeStat]:
        one_shot, callback = self._watch(watch)
        names, stat = await self._call(
            f"list {path}",
            lambda: self._client.get_children_async(path, watch=callback, include_data=True),
            one_shot,
        )
        return sorted(names), _stat(stat)

    async def exists(self, path: str, watch: Watch | None = None) -> ZnodeStat | None:
        one_shot, callback = self._watch(watch)
        stat = await self._call(
            f"look for {path}", lambda: self._client.exists_async(path, watch=callback), one_shot
        )
        return None if stat is None else _stat(stat)

    async def sync(self, path: str) -> None:
        await self._call(f"sync {path}", lambda: self._client.sync_async(path))

    async def create(
        self,
        path: str,
        data: bytes | None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        check_size([CreateOp(path, data)])
        if make_parents:
            await self._create_chroot()
            return await create_with_parents(self, path, data, ephemeral=ephemeral, sequential=sequential)
        created = await self._call(
            f"create {path}",
            lambda: self._client.create_async(path, data, ephemeral=ephemeral, sequence=sequential),
        )
        return str(created)

    async def _create_chroot(self) -> None:
        """The znode that all paths are below, when the connect string names one that is not there."""
        chroot = self._client.chroot
        if not chroot or await self.exists("/") is not None:
            return
        parts = chroot.strip("/").split("/")
        for depth in range(len(parts)):
            op = CreateOp("/" + "/".join(parts[: depth + 1]), b"")
            request = self._client.transaction()
            request._add(self._create_of(op.path, op))
            try:
                await self._commit(request, [op])
            except errors.NodeExistsError:
                continue

    def _create_of(self, whole_path: str, op: CreateOp) -> Create:
        acl = self._client.default_acl or OPEN_ACL_UNSAFE
        return Create(whole_path, op.data, acl, 1 if op.ephemeral else 0)

    async def set(self, path: str, data: bytes | None, *, version: int = -1) -> ZnodeStat:
        check_size([SetOp(path, data)])
        return _stat(await self._call(f"set {path}", lambda: self._client.set_async(path, data, version)))

    async def acl(self, path: str) -> list[str]:
        """Permissions of a znode, one `scheme:id:permissions` each."""
        entries, _ = await self._call(
            f"read the permissions of {path}", lambda: self._client.get_acls_async(path)
        )
        return [acl_text(one) for one in entries]

    async def set_acl(self, path: str, acl: str) -> None:
        """Set them, in the form of `zookeeper.acl`; ConfigError for another one."""
        entries = parse_acl(acl, has_credentials=True)
        await self._call(f"set the permissions of {path}", lambda: self._client.set_acls_async(path, entries))

    async def delete(self, path: str, *, version: int = -1) -> None:
        await self._call(f"delete {path}", lambda: self._client.delete_async(path, version))

    async def transaction(self, ops: Sequence[Op]) -> None:
        if not ops:
            return
        check_size(ops)
        request = self._client.transaction()
        for op in ops:
            self._add(request, op)
        await self._commit(request, ops)

    async def _commit(self, request: TransactionRequest, ops: Sequence[Op]) -> None:
        results = await self._call(f"change {ops[0].path} and others", request.commit_async)
        for op, result in zip(ops, results, strict=True):
            if isinstance(result, Exception) and not isinstance(
                result, zk.RolledBackError | zk.RuntimeInconsistency
            ):
                raise map_error(result, f"{type(op).__name__} {op.path}")
        if any(isinstance(result, Exception) for result in results):
            raise errors.StoreError(f"the transaction on {ops[0].path} was rolled back")

    def _add(self, request: TransactionRequest, op: Op) -> None:
        # kazoo's own methods take no znode without data; they put the chroot before the path, as these do
        match op:
            case CreateOp():
                request._add(self._create_of(_prefix_root(self._client.chroot, op.path), op))
            case SetOp():
                request._add(SetData(_prefix_root(self._client.chroot, op.path), op.data, op.version))
            case DeleteOp():
                request.delete(op.path, op.version)
            case CheckOp():
                request.check(op.path, op.version)

    async def close(self) -> None:
        """End the session; one that ZooKeeper does not confirm within `CLOSE_SECONDS` ends by its timeout.
        Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._client.remove_listener(self._state_changed)
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            await asyncio.gather(self._heartbeat, return_exceptions=True)
        stopped = asyncio.Event()
        # Not in the loop's executor, whose threads hold up the end of a process: kazoo waits for its own
        # thread without end, and that one for whatever connects or answers.
        threading.Thread(
            target=self._stop_client, args=(stopped,), name="zookeeper-close", daemon=True
        ).start()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await stopped.wait()
        except TimeoutError:
            self._handler.abandon()
            _log.warning(
                "ZooKeeper did not confirm the end of the session within %g s: it ends by its timeout",
                CLOSE_SECONDS,
            )

    def _stop_client(self, stopped: asyncio.Event) -> None:  # thread
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:  # what has ended on its own, or could not in kazoo's own time
            _log.debug("kazoo did not stop in order: %s", error)
        finally:
            fire_from_thread(self._loop, stopped.set)


def _stat(stat: Any) -> ZnodeStat:
    return ZnodeStat(stat.version, stat.cversion, stat.ephemeralOwner, stat.numChildren, stat.mtime)
