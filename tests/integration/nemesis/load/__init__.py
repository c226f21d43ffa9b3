"""Processes that use the cluster and write down, before anything else happens, what they were told."""
