"""The branch service: a ledger without an event loop. It opens many accounts at once and shows what has
happened to a book."""
