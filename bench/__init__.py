"""The benchmarks: `python -m bench` from the root of the repository (see README.md next to this file)."""
