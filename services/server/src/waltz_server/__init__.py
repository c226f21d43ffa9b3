"""The server: locks, numbering, replication, feed."""
