"""What runs in pods of its own, started by the operator: the offline copy of a partition."""
