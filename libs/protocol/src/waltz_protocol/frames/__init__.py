"""Frames without message objects: the layouts of the hot paths, each defined once, for both ends of the wire.

The same bytes as `codec` makes of `messages`, at about a tenth of the cost. One module per part of the
protocols: `append`, `feed`, `data` and `replies` between clients and servers, `storage` between servers and
storage nodes.
"""
