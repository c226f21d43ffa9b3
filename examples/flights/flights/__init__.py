"""`make demo`: the real flights of a year through a local cluster that loses two of its processes, and a
check of every row."""
