"""`python -m render APPLICATION.yaml... --output FOLDER`: writes a folder per application."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from render.all_files import files
from render.application import load
from waltz_spark.errors import OptionError


def main() -> None:
    """The command line; one line for a mistake in a description."""
    flags = argparse.ArgumentParser(
        prog="python -m render", description="Render Spark applications for Kubernetes."
    )
    flags.add_argument("applications", nargs="+", type=Path, help="descriptions (YAML)")
    flags.add_argument("--output", required=True, type=Path, help="folder for a folder per application")
    given = flags.parse_args()
    try:
        for path in given.applications:
            application = load(path)
            folder = given.output / application.name
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in files(application).items():
                (folder / name).write_text(content)
    except OptionError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
