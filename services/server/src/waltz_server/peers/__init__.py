"""Servers that watch each other: a crashed or frozen one loses its partitions before its ZooKeeper session
ends (docs/recovery.md, ADR 35). `judgement` decides, `detector` owns the connections and does what it says.
"""
