"""Replica changes: the ladder of one, where copies belong, who waits for whom."""
