"""Certificates of a cluster that the operator makes itself: authority, certificate per role, rotation.

`authority` makes keys and certificates, `rotation` decides what has to be made again (pure), `secrets`
turns both into the Secrets that pods mount.
"""
