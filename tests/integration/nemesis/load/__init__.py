"""Processes that use the cluster and write down, before anything else happens, the answers they got."""
