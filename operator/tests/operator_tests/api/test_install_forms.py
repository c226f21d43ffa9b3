"""Three forms of one install have the same objects: the kustomize base, `install.yaml`, the Helm chart.

The base is the source. `install.yaml` is made of it (WALTZ_WRITE_DOCS=1 writes it); the chart reads the
base's own files when it is rendered. The tests of the chart need helm, on PATH or by `make helm`.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from operator_tests.api.install_forms import (
    CHART,
    MANIFESTS,
    ROOT,
    Key,
    Object,
    helm,
    keyed,
    kubectl,
    kustomized,
    render_chart,
)
from operator_tests.yaml_text import documents
from waltz_protocol import __version__

INSTALL = MANIFESTS / "install.yaml"
HEAD = "# Made of manifests/base; WALTZ_WRITE_DOCS=1 .venv/bin/pytest operator/tests/operator_tests/api writes it again.\n"
FORMS = ["base", "overlays/namespaced"]
DIGEST = "sha256:" + "a" * 64


def rendered() -> str:
    found = yaml.safe_dump_all(kustomized(MANIFESTS / "base"), sort_keys=False, width=150, allow_unicode=True)
    return HEAD + found


def test_the_rendered_file_is_up_to_date() -> None:
    if os.environ.get("WALTZ_WRITE_DOCS") == "1":
        INSTALL.write_text(rendered())
    assert INSTALL.read_text() == rendered(), "run with WALTZ_WRITE_DOCS=1 to write it"


@pytest.mark.parametrize("form", FORMS)
def test_kustomize_makes_the_same_of_it(form: str) -> None:
    program = kubectl()
    if program is None:
        pytest.skip("there is no kubectl on PATH or in KUBEBUILDER_ASSETS")
    made = subprocess.run(
        [program, "kustomize", str(MANIFESTS / form)], capture_output=True, text=True, check=True
    )
    assert keyed(documents(made.stdout)) == keyed(kustomized(MANIFESTS / form))


def test_names_come_before_what_is_in_them() -> None:
    """kubectl applies a file from its beginning to its end."""
    kinds = [one["kind"] for one in documents(INSTALL.read_text())]
    assert kinds.index("Namespace") < min(kinds.index(kind) for kind in ("ServiceAccount", "Deployment"))


@pytest.mark.parametrize("form", FORMS)
def test_taking_a_form_away_takes_no_namespace_that_clusters_are_in(form: str) -> None:
    """`kubectl delete -k` deletes the namespaces of a form with all that is in them: volumes that were kept,
    and the Secrets without which ZooKeeper cannot be read."""
    made = kustomized(MANIFESTS / form)
    (deployment,) = (one for one in made if one["kind"] == "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    worked_in = {arguments[at + 1] for at, one in enumerate(arguments) if one == "--namespace"}
    namespaces = {one["metadata"]["name"] for one in made if one["kind"] == "Namespace"}
    assert namespaces == {"waltz-system"}
    assert not namespaces & worked_in


# -- the chart ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def program() -> str:
    found = helm()
    if found is None:
        pytest.skip("there is no helm on PATH; make helm builds it, in minutes")
    return found


def of_chart(
    program: str, values: Object | None = None, *, namespace: str = "waltz-system"
) -> dict[Key, Object]:
    done = render_chart(program, values or {}, namespace=namespace)
    assert done.returncode == 0, done.stderr
    return keyed([one for one in documents(done.stdout) if one["metadata"]["name"] != "waltz-operator-test"])


def of_base(form: str = "base") -> dict[Key, Object]:
    """Without namespaces, which a chart does not make; definitions are kept when a release goes."""
    found = copy.deepcopy(keyed([one for one in kustomized(MANIFESTS / form) if one["kind"] != "Namespace"]))
    for one in found.values():
        if one["kind"] == "CustomResourceDefinition":
            one["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    return found


def operator(objects: dict[Key, Object], namespace: str = "waltz-system") -> Any:
    return objects["Deployment", namespace, "waltz-operator"]["spec"]["template"]


def container(objects: dict[Key, Object]) -> Any:
    return operator(objects)["spec"]["containers"][0]


def test_the_chart_reads_the_files_of_the_base() -> None:
    """Without helm too: there is no second copy that could differ."""
    sources = {"crds": ROOT / "crds", "common": MANIFESTS / "common", "base": MANIFESTS / "base"}
    for name, source in sources.items():
        link = CHART / "files" / name
        assert link.is_symlink()
        assert link.resolve() == source
    text = "".join(path.read_text() for path in (CHART / "templates").glob("*.yaml"))
    for folder in ("common", "base"):
        for path in sorted((MANIFESTS / folder).glob("*.yaml")):
            if path.name not in ("kustomization.yaml", "namespace.yaml"):
                assert f"files/{folder}/{path.name}" in text


def test_the_chart_is_of_this_release() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def _names(schema: Object, path: str = "") -> Iterator[str]:
    for name, inner in schema.get("properties", {}).items():
        where = f"{path}.{name}" if path else name
        below = list(_names(inner, where))
        yield from below or [where]


def _given(values: Object, schema: Object, path: str = "") -> Iterator[str]:
    for name, value in values.items():
        where = f"{path}.{name}" if path else name
        inner = schema["properties"][name]
        yield from _given(value, inner, where) if "properties" in inner else [where]


def test_every_value_has_a_default_and_a_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(_given(values, schema)) == set(_names(schema)) - {"global"}


def test_the_chart_makes_the_objects_of_the_base(program: str) -> None:
    made, wanted = of_chart(program), of_base()
    assert made.keys() == wanted.keys()
    for key, one in wanted.items():
        assert made[key] == one, key


def test_with_namespaces_it_makes_those_of_the_overlay(program: str) -> None:
    made, wanted = of_chart(program, {"watchNamespaces": ["waltz"]}), of_base("overlays/namespaced")
    for key in (("Role", "waltz", "waltz-operator"), ("RoleBinding", "waltz", "waltz-operator")):
        made[key]["metadata"].pop("labels")  # the overlay has none on these two
    assert made == wanted


def test_each_namespace_has_a_role_and_nothing_else_is_granted(program: str) -> None:
    made = of_chart(program, {"watchNamespaces": ["a", "b"], "people": {"create": False}}, namespace="ops")
    assert container_args(made) == ["run", "--namespace", "a", "--namespace", "b"]
    granted = {key for key in made if "Role" in key[0]}
    assert granted == {
        (kind, namespace, name)
        for kind in ("Role", "RoleBinding")
        for namespace, name in (
            ("a", "waltz-operator"),
            ("b", "waltz-operator"),
            ("ops", "waltz-operator-own"),
        )
    }
    for key in granted:
        assert all(one["namespace"] == "ops" for one in made[key].get("subjects", ()))


def container_args(objects: dict[Key, Object]) -> Any:
    return operator(objects, "ops")["spec"]["containers"][0]["args"]


def test_registry_digests_and_secrets_reach_the_operator_and_its_clusters(program: str) -> None:
    made = of_chart(
        program,
        {
            "registry": "r.example.com/waltz/",
            "image": {"digest": DIGEST},
            "pullSecrets": ["mine"],
            "clusters": {"pullSecrets": ["a", "b"], "digests": {"waltz-server:0.1.0": DIGEST}},
        },
    )
    assert container(made)["image"] == f"r.example.com/waltz/waltz-operator@{DIGEST}"
    assert operator(made)["spec"]["imagePullSecrets"] == [{"name": "mine"}]
    given = {one["name"]: one.get("value") for one in container(made)["env"]}
    assert given == {
        "POD_NAME": None,
        "POD_NAMESPACE": None,
        "WALTZ_IMAGE_REGISTRY": "r.example.com/waltz",
        "WALTZ_IMAGE_DIGESTS": f"waltz-server:0.1.0@{DIGEST}",
        "WALTZ_IMAGE_PULL_SECRETS": "a,b",
    }


def test_pods_take_what_a_platform_asks_for(program: str) -> None:
    values = {
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "high",
        "podLabels": {"team": "platform"},
        "podAnnotations": {"note": "x"},
        "resources": {"limits": {"memory": "1Gi"}},
    }
    template = operator(of_chart(program, values))
    for field in ("nodeSelector", "tolerations", "priorityClassName"):
        assert template["spec"][field] == values[field]
    assert template["metadata"]["labels"] == {"team": "platform", "app.kubernetes.io/name": "waltz-operator"}
    assert template["metadata"]["annotations"]["note"] == "x"
    assert template["spec"]["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}


def test_the_way_out_of_the_operator_can_be_closed(program: str) -> None:
    rule = {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}
    made = of_chart(program, {"networkPolicy": {"egress": {"enabled": True, "rules": [rule]}}})
    spec = made["NetworkPolicy", "waltz-system", "waltz-operator"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["egress"][-1] == rule
    assert {port["port"] for one in spec["egress"] for port in one.get("ports", ())} == {53, 443, 6443}
    assert not [key for key in of_chart(program, {"networkPolicy": {"enabled": False}}) if "Policy" in key[0]]


@pytest.mark.parametrize(
    "values",
    [
        {"imag": {"tag": "1"}},
        {"image": {"tags": "1"}},
        {"image": {"digest": "sha256:1"}},
        {"watchNamespaces": "a"},
        {"clusters": {"digests": {"waltz-server": DIGEST}}},
        {"log": {"level": "LOUD"}},
        {"networkPolicy": {"egress": {"rule": []}}},
    ],
    ids=str,
)
def test_a_value_that_is_none_is_refused(program: str, values: Object) -> None:
    done = render_chart(program, values)
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr


def test_the_test_of_the_release_asks_the_operator_and_the_server(program: str) -> None:
    done = render_chart(program, {}, namespace="ops")
    (pod,) = (one for one in documents(done.stdout) if one["metadata"]["name"] == "waltz-operator-test")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (check,) = pod["spec"]["containers"]
    assert check["args"] == ["http://waltz-operator.ops.svc:8080/healthz"]
    compile(check["command"][-1], "check.py", "exec")


def test_the_test_of_the_release_asks_no_service_that_is_not_there(program: str) -> None:
    done = render_chart(program, {"service": {"create": False}}, namespace="ops")
    found = keyed(documents(done.stdout))
    assert ("Service", "ops", "waltz-operator") not in found
    (check,) = found["Pod", "ops", "waltz-operator-test"]["spec"]["containers"]
    assert check["args"] == [""]
    ended = subprocess.run(
        [sys.executable, "-c", check["command"][-1], "", "http://127.0.0.1:1", "/no"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "no Service" in ended.stdout
    assert "/no/token" in ended.stderr, "it continues with the API server"
