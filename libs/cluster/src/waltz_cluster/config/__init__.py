"""Configuration files of every role: `files` reads YAML, `settings` checks its keys, `allowed_peers` is
the setting of that name. Nothing here talks to ZooKeeper."""
