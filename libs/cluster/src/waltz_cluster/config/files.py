"""Reading a configuration file: YAML whose keys may be dotted, nested or mixed (docs/configuration.md)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from waltz_cluster.errors import ConfigError

MAX_DEPTH = 50
MAX_KEYS = 10_000
_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """Refuses a map that gives a key twice, of which PyYAML takes the last one. What `<<` brings is of
    another map, and may be given again. ConfigError; `name` is the file's."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                name, line = (key.tag, key.value), key.start_mark.line + 1
                if name in lines:
                    raise ConfigError(
                        f"{self.name}, line {line}: the key {key.value} is given twice (first in line {lines[name]})"
                    )
                lines[name] = line
        return node


def flatten(mapping: Mapping[object, object], *, source: str) -> dict[str, object]:
    """`{"a": {"b.c": 1}}` becomes `{"a.b.c": 1}`; a key given twice in two spellings is a ConfigError."""
    flat: dict[str, object] = {}

    def visit(prefix: str, value: object, depth: int) -> None:
        # An alias may name the map it is in, or double what it names again and again.
        if depth > MAX_DEPTH or len(flat) > MAX_KEYS:
            raise ConfigError(f"{source}: more than {MAX_DEPTH} levels or {MAX_KEYS} keys")
        if isinstance(value, Mapping) and value:
            for key, inner in value.items():
                visit(f"{prefix}.{key}" if prefix else str(key), inner, depth + 1)
        elif prefix in flat:
            raise ConfigError(f"{source}: the key {prefix} is given twice")
        elif prefix:
            flat[prefix] = value

    visit("", mapping, 0)
    return flat


def load_file(path: str | Path) -> dict[str, object]:
    """The flat keys of a YAML file; ConfigError (one line) when it cannot be read or is not a map."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read configuration file {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"cannot read configuration file {path}: it is not UTF-8 text") from None
    try:
        loader = _Loader(text)
        loader.name = str(path)
        try:
            content = loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "not readable"
        raise ConfigError(f"configuration file {path} is not valid YAML{where}: {problem}") from None
    except (ValueError, RecursionError) as error:  # a date or number that is none; thousands of brackets
        problem = str(error).partition("\n")[0]
        raise ConfigError(f"configuration file {path} is not valid YAML: {problem}") from None
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise ConfigError(f"configuration file {path} must hold keys and values")
    return flatten(content, source=str(path))
