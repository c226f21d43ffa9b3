"""The waltz command."""
