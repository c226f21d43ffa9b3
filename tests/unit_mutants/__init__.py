"""Bugs that the unit tests have to notice: planted ones, and ones that operators make of the source text.

Each is a change of the shipped source made while a module is loaded, in a process of its own
(`tests.sim.mutants.loader`); nothing of it is in shipped code. `run` tries them against the tests of the
member that the source belongs to.
"""
