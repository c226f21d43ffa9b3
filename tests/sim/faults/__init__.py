"""Faults: what a seed does to a cluster (`plan`), doing it (`apply`), and what is left of it when a failure
is shrunk (`shrink`)."""
