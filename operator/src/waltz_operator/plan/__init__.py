"""What the operator decides: from a snapshot to ordered actions and a status. Pure; nothing here reads or
writes the world."""
