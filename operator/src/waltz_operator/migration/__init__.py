"""Replica changes: the ladder of one partition, and WaltzMigration as a pure state machine over it."""
