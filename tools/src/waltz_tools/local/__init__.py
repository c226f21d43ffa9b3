"""A cluster of real processes on this machine: ZooKeeper, storage nodes, servers.

`LocalCluster` is what `waltz local up`, the demo, the integration tests, the soak run and the bench use.
"""

from waltz_tools.local.cluster import LocalCluster, LocalSettings

__all__ = ["LocalCluster", "LocalSettings"]
