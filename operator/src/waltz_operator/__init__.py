"""The Kubernetes operator: WaltzCluster and WaltzMigration."""
