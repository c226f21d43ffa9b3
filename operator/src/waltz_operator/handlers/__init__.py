"""What kopf does for the operator: it watches. Every event wakes the worker of the cluster it concerns; nothing else is done with it.

No daemon, timer, finalizer or annotation of kopf's is used: progress is in the status, the finalizer and back-off are ours, and so a pass can
start from nothing and be tested without kopf.
"""
