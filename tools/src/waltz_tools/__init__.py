"""The waltz command."""

from waltz_protocol import __version__ as __version__
