"""What must hold of a history, whatever happened: pure functions that share no code with the product."""
