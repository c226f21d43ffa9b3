"""Peers that mean harm, against real processes.

`attacks_*` are what they do, `catalogue` names each and says against which ports, `attacker` is the process
they run in, `stage` the cluster with its bystander and the eyes on the attacked process. `bench/hostile.py`
measures the same attacks.
"""
