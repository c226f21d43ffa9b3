"""Planted bugs: each is a small change of the shipped source, made while a module is loaded, in a process of
its own.

The catalogue says what each one breaks and what must happen for it to show; `run` looks for the first seed
that finds it.
"""
