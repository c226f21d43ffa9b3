"""Discovery by a list of servers, in place of ZooKeeper: docs/protocol.md, version 5, directory."""
