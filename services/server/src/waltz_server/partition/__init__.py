"""One owned partition as its clients see it: locks, queue, mounts, feeds, caches.

`partition.Partition` ties the parts together and implements the listener of the replication core
(`waltz_server.store.api`). Everything here is synchronous code on the event loop, except the owner tasks
started by `Partition.run`.
"""
