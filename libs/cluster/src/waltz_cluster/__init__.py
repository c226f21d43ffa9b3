"""ZooKeeper for Waltz: layout, sessions, membership, partition assignment, store metadata; and, in
`config`, the configuration files of every role.

Everything talks to the `ZooKeeperStore` protocol (`store.py`); `zk_client` is the one module that knows
kazoo, `memory_store` is the same store in one process. `manager` is what servers and clients use.
"""

from waltz_protocol import __version__ as __version__
