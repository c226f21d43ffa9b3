"""The machinery behind :class:`waltz_client.WaltzClient`; nobody outside this package imports it."""
