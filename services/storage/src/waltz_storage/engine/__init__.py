"""The log on disk: files of release 0.13.2, crash-safe, synchronous.

Nothing in here knows asyncio, sockets, randomness or the clock: the wall clock is injected as
`now_ms` and the disk as a `FileSystem`, so that the same code
runs on a real directory and on the faulty in-memory disk of the tests.

Reading order: `layout` (bytes), `files` (the disk seam), `control_file`, `sidecar` (fence and
synced mark), `segment`, `recovery` (opening), `partition`, `storage_manager`; then `journal`, which lies
between all of them and the disk where a node has one.
"""
