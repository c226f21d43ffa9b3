"""The set-up of the project installs exactly what the pins say."""

import re
import tomllib

from tests.repo.files import ROOT, members


def names_of(requirements: str) -> set[str]:
    return {
        re.split(r"[=<>!~ ;\[]", line, maxsplit=1)[0].lower().replace("_", "-")
        for line in requirements.splitlines()
        if re.match(r"[A-Za-z]", line)
    }


def test_every_dependency_of_a_member_is_pinned() -> None:
    pinned = names_of((ROOT / "requirements" / "dev.txt").read_text())
    own = {tomllib.loads((member / "pyproject.toml").read_text())["project"]["name"] for member in members()}
    for member in members():
        project = tomllib.loads((member / "pyproject.toml").read_text())["project"]
        wanted = list(project["dependencies"]) + [
            name for extra in project.get("optional-dependencies", {}).values() for name in extra
        ]
        missing = names_of("\n".join(wanted)) - pinned - own
        assert not missing, f"{member.name}: add {missing} to requirements/dev.in and run make lock"


def test_every_member_is_installed_by_make_and_seen_by_the_import_contracts() -> None:
    makefile = (ROOT / "Makefile").read_text()
    listed = set(
        next(line for line in makefile.splitlines() if line.startswith("MEMBERS")).split(":=")[1].split()
    )
    assert listed == {str(member.relative_to(ROOT)) for member in members()}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
    packages = {
        path.name
        for member in members()
        for path in (member / "src").iterdir()
        if path.is_dir() and path.name.startswith("waltz_")
    }
    assert set(contracts) == packages
