"""A SPARK_HOME for the PySpark that pip has installed, whose workers start in a quarter of the time.

Spark starts a Python process for every new kind of work and puts `$SPARK_HOME/python/lib/pyspark.zip` in
front of its path. In the pip package that zip has sources only, so each process compiles them anew. In a home
without the zip, Python takes the installed modules, which are compiled. Our image does the same by deleting
the zip.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

_WITHOUT = "python"


def prepare(folder: Path) -> Path:
    """Make `folder` a home out of links to the installed PySpark; give its path for the environment
    variable SPARK_HOME."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("pyspark is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    for entry in Path(spec.origin).parent.iterdir():
        link = folder / entry.name
        if entry.name != _WITHOUT and not link.is_symlink():
            link.symlink_to(entry)
    return folder
