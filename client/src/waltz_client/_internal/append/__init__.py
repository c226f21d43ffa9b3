"""An append, from the request to its outcome."""
