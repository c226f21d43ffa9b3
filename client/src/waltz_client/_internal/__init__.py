"""The machinery behind `waltz_client.WaltzClient`; nobody outside this package imports it.

From the top: `core` (what a client is made of), `appender` and `contexts` (appends, and transactions
that are run again), `partitions` (what a client takes part in), `applier` (callbacks), `stream` and
`rpc` (the two connections to a server), `append` (a request, its window, its outcome).
"""
