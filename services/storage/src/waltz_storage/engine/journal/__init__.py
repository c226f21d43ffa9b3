"""The node journal: what all partitions of a node made durable in one turn, in one write and one sync.

Reading order: `layout` (bytes), `log` (files, commits, rotation), `replay` (after a crash), `filesystem` (the
disk seam through the journal), `directory` (when a storage directory depends on its journal).
"""
