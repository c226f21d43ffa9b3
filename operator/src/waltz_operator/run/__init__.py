"""The running operator: it observes, asks the planners, and applies; Lease, workers, watches, metrics.

kopf only watches: every event wakes the worker of the cluster it concerns. No daemon, timer, finalizer or
annotation of kopf's is used: progress is in the status, the finalizer and back-off are ours, so a pass can
start from nothing and be tested without kopf.
"""
