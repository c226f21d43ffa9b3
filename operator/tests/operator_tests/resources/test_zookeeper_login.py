"""What is rendered for roles with the operator's credentials for a managed ZooKeeper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from operator_tests.resources.clusters import INPUTS, Obj, cluster, live, objects
from waltz_operator.api.validate import problems
from waltz_operator.resources.login import Level, level_of
from waltz_server.settings import ServerSettings
from waltz_storage.settings import StorageSettings

WORKLOADS = {
    "storage": ("StatefulSet", "ledger-storage-1-0"),
    "server": ("Deployment", "ledger-server"),
}


def template(found: dict[tuple[str, str], Obj], role: str) -> Obj:
    made: Obj = found[WORKLOADS[role]]["spec"]["template"]
    return made


def volumes(found: dict[tuple[str, str], Obj], role: str) -> set[str]:
    return {volume["name"] for volume in template(found, role)["spec"]["volumes"]}


@pytest.mark.parametrize("role", WORKLOADS)
@pytest.mark.parametrize(("level", "acl"), [(Level.SHARED, "open"), (Level.OWN, "creator")])
def test_roles_mount_the_credentials_and_read_a_file_that_names_them(
    role: str, level: Level, acl: str, tmp_path: Path
) -> None:
    found = objects(cluster(), replace(INPUTS, login=level, auth_hash="x"))
    made = template(found, role)
    assert level_of(made["metadata"]["annotations"]) is level
    assert "zookeeper-auth" in volumes(found, role)
    file = Path(made["spec"]["containers"][0]["args"][0]).name
    data = found["ConfigMap", f"ledger-{role}"]["data"]
    (tmp_path / file).write_text(data[file])
    read = StorageSettings.from_file if role == "storage" else ServerSettings.from_file
    settings = read(tmp_path / file)
    assert settings.zookeeper_auth_file == "/etc/waltz/zookeeper-auth/auth"
    assert settings.zookeeper_acl == acl


@pytest.mark.parametrize("role", WORKLOADS)
def test_pods_of_the_template_before_find_their_file_as_it_was(role: str) -> None:
    """A container that starts again reads the ConfigMap as it is by then."""
    before = objects(cluster())
    file = f"waltz-{role}.yml"
    for first, then in ((Level.NONE, Level.SHARED), (Level.SHARED, Level.NONE)):
        old = objects(cluster(), replace(INPUTS, login=first))
        new = objects(cluster(), replace(INPUTS, login=then, live=live(old)))
        read = Path(template(old, role)["spec"]["containers"][0]["args"][0]).name
        name = ("ConfigMap", f"ledger-{role}")
        assert new[name]["data"][read] == old[name]["data"][read]
        assert new[name]["data"][file] == before[name]["data"][file]


def test_without_credentials_nothing_is_as_it_was_not_before() -> None:
    """No annotation, no volume, no key: nothing that would restart the pods of an earlier release."""
    found = objects(cluster())
    for role in WORKLOADS:
        assert "waltz.dev/zookeeper-login" not in template(found, role)["metadata"]["annotations"]
        assert "zookeeper-auth" not in volumes(found, role)
        assert set(found["ConfigMap", f"ledger-{role}"]["data"]) == {f"waltz-{role}.yml"}


def test_zookeeper_itself_is_not_restarted() -> None:
    before = objects(cluster())["StatefulSet", "ledger-zookeeper"]
    after = objects(cluster(), replace(INPUTS, login=Level.OWN, auth_hash="x"))
    assert after["StatefulSet", "ledger-zookeeper"] == before


def test_credentials_of_ones_own_and_of_the_operator_exclude_each_other() -> None:
    made = cluster({"zookeeper": {"auth": {"secretName": "mine"}}})
    managed = made.spec.zookeeper.managed
    assert managed is not None
    both = made.spec.zookeeper.model_copy(
        update={"managed": managed.model_copy(update={"authentication": "Digest"})}
    )
    wrong = made._replace(spec=made.spec.model_copy(update={"zookeeper": both}))
    assert [one.path for one in problems(wrong)] == ["spec.zookeeper.auth"]
