"""What tools and operator do to a cluster; the only hand they have. Applications never install this.

All functions take a `ZooKeeperStore` and the cluster root; those that talk to processes take TLS settings
too. Every change is one atomic, version-checked transaction under the admin lock, so a crash leaves all of it
or nothing, and running it again completes what an older tool left half-done.
"""

from waltz_protocol import __version__ as __version__
