"""The status of WaltzClusters and WaltzMigrations: phases, conditions, progress. Pure."""
