"""The fenced blocks of the documents: what a person would copy into a shell."""

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^( *)```(.*)$")


@dataclass(frozen=True)
class Block:
    """One fenced block. `info` is what is behind the fence; `run` the name in `sh run=NAME`."""

    file: str
    line: int
    info: str
    text: str

    @property
    def language(self) -> str:
        return self.info.split(" ", 1)[0]

    @property
    def run(self) -> str | None:
        match = re.search(r"\brun=(\S+)", self.info)
        return match[1] if match else None

    @property
    def commands(self) -> list[str]:
        """Its lines, continued ones joined, without comments and prompts."""
        joined = re.sub(r"\\\n\s*", " ", self.text)
        lines = [re.sub(r"\s+#\s.*$", "", line.removeprefix("$ ")).strip() for line in joined.splitlines()]
        return [line for line in lines if line and not line.startswith("#")]


def blocks(path: Path, root: Path) -> list[Block]:
    """Every fenced block of a Markdown file, in order."""
    found: list[Block] = []
    start, info, lines = 0, "", list[str]()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = _FENCE.match(line)
        if match is None:
            lines.append(line)
        elif start:
            found.append(Block(str(path.relative_to(root)), start, info, "\n".join(lines)))
            start = 0
        else:
            start, info, lines = number, match[2].strip(), []
    return found
