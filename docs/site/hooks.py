"""What `make docs` reads: the Markdown files of the repository where they are, so that each link on a page
leads to the same file on the site and in a checkout.

MkDocs knows one folder of pages; ours are next to what they describe. Every tracked page is given to it under
its path from the top, and so is each source file that a page links to. A link to a folder becomes its words.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s:]+)(?:#[^)\s]*)?\)")


def _pages() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [ROOT / name for name in sorted(listed.split("\0")) if name and (ROOT / name).is_file()]


def on_files(files: Files, *, config: Any) -> Files:
    """The pages, what they link to, and of the files that MkDocs has found itself those of its theme."""
    found = set(_pages())
    for page in tuple(found):
        links = ((page.parent / target).resolve() for _, target in LINK.findall(page.read_text()))
        found |= {link for link in links if link.is_file() and link.is_relative_to(ROOT)}
    ours = [
        File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))
        for path in sorted(found)
    ]
    theirs = [file for file in files if not str(file.abs_src_path).startswith(str(ROOT / "docs"))]
    return Files([*theirs, *ours])


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Links to folders as words: a site has no page for them."""
    folder = (ROOT / page.file.src_uri).parent
    return LINK.sub(lambda link: link[1] if (folder / link[2]).is_dir() else link[0], markdown)
