"""The accounts service: accepts transfers under optimistic locks and keeps the balances."""
