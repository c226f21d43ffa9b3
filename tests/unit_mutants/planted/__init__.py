"""Planted bugs that the unit tests have to notice, by the part of the code they are in. Each is one line of
the source."""
