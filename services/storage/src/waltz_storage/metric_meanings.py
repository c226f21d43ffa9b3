"""What the metrics of a storage node mean (docs/metrics.md is made from this). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from waltz_runtime.meanings import Meaning
from waltz_storage import __version__

_SECONDS_PER_DAY = 86_400

MEANINGS: Mapping[str, Meaning] = {
    # -- of the process
    "waltz-storage-num-partitions": Meaning("Partitions of the cluster."),
    "waltz-storage-partition-ids": Meaning("Partitions that the node has.", "waltz_storage_held_partitions"),
    "waltz-version-id": Meaning("Version of the storage node.", "waltz_storage_version", text=True),
    "troubled-partitions": Meaning("Partitions that are out of service, damaged or on a failing disk."),
    "tls-certificate-expiry-timestamp-seconds": Meaning(
        "When the certificate of the node expires, Unix time."
    ),
    "log-bytes": Meaning("Bytes of the log on disk, of the partition or (without that label) of all."),
    "log-growth-bytes-per-day": Meaning(
        "Growth of the log in the window that was observed.",
        "waltz_storage_log_growth_bytes_per_second",
        scale=1 / _SECONDS_PER_DAY,
    ),
    "log-growth-window-seconds": Meaning("Length of the window in which the growth was observed."),
    "disk-size-bytes": Meaning("Size of the file system of the directory."),
    "disk-free-bytes": Meaning("Free space of that file system."),
    "disk-reserve-bytes": Meaning("Free space below which appends are refused."),
    "disk-days-to-full": Meaning(
        "Time until the reserve is reached at the present growth.",
        "waltz_storage_disk_time_to_full_seconds",
        scale=_SECONDS_PER_DAY,
    ),
    "disk-full": Meaning("1 while appends are refused because the disk is full."),
    # -- of a partition that the node has
    "session-id": Meaning("Last store session that the partition has completed; -1 for none."),
    "fence-session-id": Meaning("Requests of sessions below this one are refused."),
    "low-water-mark": Meaning("Up to here everything was committed when that session began; -1 for nothing."),
    "local-low-water-mark": Meaning("Up to here this copy had everything then; -1 for nothing."),
    "max-transaction-id": Meaning("Last transaction of this copy, committed or not; -1 for none."),
    "committed-transaction-id": Meaning(
        "Up to here this copy knows that everything is committed (version 1 carries the mark); -1 for nothing."
    ),
    "sequence-number": Meaning("Number of the last write of the control file's entry."),
    "flags": Meaning(
        "Bits of the partition in the control file: 1 available to servers, 4 assigned to the node."
    ),
    "process-queue-size": Meaning("Requests that wait for the disk."),
    "append": Meaning("Append requests that were carried out.", "waltz_storage_append_requests"),
    "append-bytes": Meaning(
        "Bytes of the append requests that were carried out.", "waltz_storage_append_request_bytes"
    ),
    "append-latency": Meaning("From the arrival of an append request to the end of its sync."),
    "last-session-info-request": Meaning("Requests for the last session."),
    "set-low-water-mark-request": Meaning("Requests that begin a session on this copy."),
    "truncate-request": Meaning("Requests to cut what was never committed."),
    "record-header-request": Meaning("Requests for one header."),
    "record-request": Meaning("Requests for one record."),
    "max-transaction-request": Meaning("Requests for the last transaction id."),
    "record-header-list-request": Meaning("Requests for headers."),
    "record-list-request": Meaning("Requests for records."),
    "stored-range-request": Meaning("Requests for records as they are stored (version 1)."),
    "damaged-append-request": Meaning(
        "Append requests that were refused because a record did not match its checksum."
    ),
}

BUILD: Mapping[str, str] = {"role": "storage", "version": __version__}
"""Of `waltz_build_info`."""
