"""`python -m tests.fuzz --seconds 160 [--only TARGET ...]`: coverage-guided fuzzing of every decoder and
file reader.

`--replay TARGET INPUT` (hex digits, or a file) runs one input again. `--mutations N` needs no
`atheris`: random changes, not guided. `--write-seeds` adds the targets' seeds to the corpus in the
repository.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz.corpus import write_seeds
from tests.fuzz.run import clean, failure, mutate, run_all, supported, tell
from tests.fuzz.target import NAMES


def main() -> int:
    """0 when nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=160, help="time for all targets together")
    parser.add_argument("--only", nargs="+", default=[], metavar="TARGET", help=", ".join(NAMES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "INPUT"))
    parser.add_argument("--mutations", type=int, metavar="N")
    parser.add_argument("--write-seeds", action="store_true")
    options = parser.parse_args()
    names = clean(options.only)
    if options.replay:
        text = failure(clean(options.replay[:1])[0], _input(options.replay[1]))
        print(text or "all holds")
        return 1 if text else 0
    if options.write_seeds:
        for name in names:
            print(f"{name:18} {write_seeds(name)} inputs")
        return 0
    if options.mutations:
        return _mutations(names, options.mutations, options.seed)
    if not supported():
        print(
            "atheris is not installed here (it exists for Linux x86-64 only): nothing was fuzzed; "
            "the corpus is replayed by tests/fuzz/test_corpus.py, or use --mutations N"
        )
        return 0
    return 1 if run_all(names, options.seconds, options.seed) else 0


def _input(text: str) -> bytes:
    """Hex digits, or the content of a file."""
    path = Path(text)
    return path.read_bytes() if path.is_file() else bytes.fromhex(text)


def _mutations(names: list[str], count: int, seed: int) -> int:
    found = 0
    for name in names:
        data = mutate(name, count, seed)
        print(f"{name:18} {'FOUND' if data is not None else 'all holds'}", flush=True)
        if data is not None:
            found += 1
            tell(name, data)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
