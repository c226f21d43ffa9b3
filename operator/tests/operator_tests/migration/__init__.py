"""The planner of a WaltzCluster, by rule and by state exploration."""
