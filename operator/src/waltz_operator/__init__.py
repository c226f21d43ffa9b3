"""The Kubernetes operator: WaltzCluster and WaltzMigration."""

from waltz_protocol import __version__ as __version__
