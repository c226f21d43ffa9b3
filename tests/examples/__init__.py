"""The applications in `examples/` without a cluster. With one: demo, ledger and inventory of
tests/integration."""
