"""The replication core of the server: store sessions, recovery, voting and reads.

`api` is the seam to the rest of the server; `store.QuorumPartitionStore` and
`replica_connection.ReplicaDirectory` are its implementations.
"""
