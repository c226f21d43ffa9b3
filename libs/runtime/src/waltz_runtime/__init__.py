"""What both services share: HTTP endpoints, metrics, logging, signals."""

from waltz_protocol import __version__ as __version__
