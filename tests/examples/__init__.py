"""The applications in `examples/` without a cluster. With one: tests/integration/test_{demo,ledger}.py."""
