"""An example: a ledger kept by two services that share nothing but a log.

`accounts` decides about transfers, `statements` derives a statement from what was decided; each has a
database of its own. Read `events` first (what is in the log), then `accounts/transfers` (how a decision
is made), `accounts/store` and `statements/store` (what each service makes of the log).
"""
