"""An example: stock and reservations, kept by any number of instances that share nothing but a log.

Read `events` first (what is in the log, and the locks), then `clerk` (how a decision is made), `clock` (how
reservations end) and `store` (what an instance makes of the log).
"""
