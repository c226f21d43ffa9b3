"""The benchmarks: `python -m bench` from the root of the repository (see README.md beside this file)."""
