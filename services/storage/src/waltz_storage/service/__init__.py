"""The network side of a storage node: two ports, the session fence, the queue of each partition, the disk
pool.

Reading order: `fence` (pure), `requests` (what waits), `jobs` (what runs on a disk thread),
`executor` (queues and pool), `data_handler` and `admin_handler` (the ports), `server` (a whole node).
"""
