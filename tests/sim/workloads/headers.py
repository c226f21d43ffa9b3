"""The header of a transaction says which workload wrote it, so that readers fetch only the payloads they
need."""

BANK = 1
REGISTERS = 2
COUNTERS = 3
DUTY = 4
BLIND = 5
CLOSING = 6
CROWD = 7
PRODUCERS = 8
