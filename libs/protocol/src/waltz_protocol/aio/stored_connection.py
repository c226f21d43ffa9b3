"""What a server asks of a storage node besides (`storage_connection`): stored records, where the node speaks
version 1 of the storage protocol (docs/protocol.md, version 1)."""

import asyncio

from waltz_protocol.aio.append_requests import AppendCallback
from waltz_protocol.aio.storage_connection import StorageConnection
from waltz_protocol.errors import RequestFailedError
from waltz_protocol.frames.storage import (
    STORED_RANGE_RESPONSE_TYPE,
    parse_stored_range,
    stored_append_parts,
)
from waltz_protocol.messages import storage
from waltz_protocol.types import RecordHeader, SessionInfo


class StoredConnection(StorageConnection):
    """One open connection to a storage port, by a server. Errors as for StorageConnection."""

    stored_records = False
    """Whether the node hands out and takes stored records; one of release 0.13.2 does not."""

    def _greeted(self, version: int) -> None:
        super()._greeted(version)
        self.stored_records = version >= storage.StoredRangeRequest.SINCE

    async def last_session_end_and_headers(
        self, session_id: int, partition_id: int, first: int, max_count: int
    ) -> tuple[SessionInfo, int, list[RecordHeader]]:
        """`last_session_and_end`, and `record_header_list` right behind it, in one job of the node: without
        headers where only these were refused."""
        asked = self._last_session_info(session_id, partition_id)
        last = self._max_transaction_id(session_id, partition_id)
        listed = self._record_header_list(session_id, partition_id, first, max_count)
        session, end, headers = await asyncio.gather(asked, last, listed, return_exceptions=True)
        if isinstance(session, BaseException):
            raise session
        if isinstance(end, BaseException):
            raise end
        if isinstance(headers, RequestFailedError):
            return session.info, end.transaction_id, []
        if isinstance(headers, BaseException):
            raise headers
        return session.info, end.transaction_id, list(headers.headers)

    async def stored_range(
        self,
        session_id: int,
        partition_id: int,
        first: int,
        last: int,
        *,
        committed: int,
        max_bytes: int,
        unresolved: bool = False,
    ) -> tuple[int, int, bytes]:
        """(first id, count, stored records back to back): those from `first` to `last`, as many as fit into
        `max_bytes` and at least one, if the node has it. None above `committed`, the committed mark of the
        session, unless `unresolved`: the session recovers. Nothing is verified (`blocks.cut_stored`).
        EncodeError unless it hands out `stored_records`."""

        def parse(body: memoryview) -> tuple[int, int, bytes]:
            if body[0] != STORED_RANGE_RESPONSE_TYPE:
                self._expect(body, storage.StoredRangeResponse, session_id, partition_id)
            self._check_echo(body, session_id, partition_id)
            found, count, records = parse_stored_range(body)
            return found, count, bytes(records)

        seq_num = self._requester.next_seq_num
        flags = storage.UNRESOLVED if unresolved else 0
        request = storage.StoredRangeRequest(
            session_id, seq_num, partition_id, first, last, committed, max_bytes, flags
        )
        return await self._requester.call(seq_num, self._encode(request), parse)

    def submit_stored_append(
        self,
        session_id: int,
        partition_id: int,
        committed: int,
        first: int,
        count: int,
        records: bytes,
        callback: AppendCallback,
    ) -> None:
        """`submit_append` of stored records from `first` on; `committed` is the committed mark of the
        session. Only where the node takes `stored_records`."""
        seq_num = self._requester.next_seq_num
        parts = stored_append_parts(
            self.version, session_id, seq_num, partition_id, committed, first, count, records
        )
        self._requester.submit(seq_num, parts, callback, session_id, partition_id)
