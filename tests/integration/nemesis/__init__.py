"""A nemesis on real processes: several faults at a time on every role and on every link between roles, under
checked load.

`plan` decides (a seed gives the same faults), `faults` does, `proxy` is between all roles, `load` writes
and reads in processes of its own, `checks` holds what they say against the log. Start: `python -m
tests.integration.nemesis --minutes 10`.
"""
