"""Documents of YAML, by the reader that is written in C: eight times as fast, and they are long."""

from typing import Any

import yaml


def documents(text: str) -> list[dict[str, Any]]:
    """Those that are not empty."""
    return [found for found in yaml.load_all(text, yaml.CSafeLoader) if found]
