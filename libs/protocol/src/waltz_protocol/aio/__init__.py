"""The shells that need a running event loop: channels, listeners, connections to storage nodes, TLS.

Everything here works on plain asyncio and on uvloop. One connection is a `channel.Channel`; requests and
replies with sequence numbers are matched by `requester.Requester`.
"""
