"""What a server asks of a storage node besides (`storage_connection`): stored records, where the node speaks
version 1 of the storage protocol (docs/protocol.md, version 1)."""

from waltz_protocol.aio.storage_connection import AppendCallback, StorageConnection
from waltz_protocol.frames.storage import (
    STORED_RANGE_RESPONSE_TYPE,
    parse_stored_range,
    stored_append_parts,
)
from waltz_protocol.messages import storage


class StoredConnection(StorageConnection):
    """One open connection to a storage port, by a server. Errors as for StorageConnection."""

    @property
    def stored_records(self) -> bool:
        """Whether the node hands out and takes stored records; one of release 0.13.2 does not."""
        return self.version >= storage.StoredRangeRequest.SINCE

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

        seq_num = self._requester.next_seq_num()
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
        seq_num = self._requester.next_seq_num()
        parts = stored_append_parts(
            self.version, session_id, seq_num, partition_id, committed, first, count, records
        )
        self._submit(session_id, seq_num, partition_id, parts, callback)
