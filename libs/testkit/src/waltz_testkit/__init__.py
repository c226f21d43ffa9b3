"""Fakes, fault proxy, faulty disk, checkers, workloads. Never shipped."""
