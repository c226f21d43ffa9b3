"""What both services share: HTTP endpoints, metrics, logging, signals."""
