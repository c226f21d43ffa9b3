"""Stock and reservations, kept by any number of instances on one log."""
