"""The messages of the protocols, one frozen dataclass each; `codec` turns them into frames and back.

Names repeat between protocols (`AppendRequest`, `OpenRequest`): import the module, `from
waltz_protocol.messages import client, storage, admin`.
"""
