"""The files in deploy/rendered: rendered from the descriptions, alike in all three ways, as restricted as a
pod can be."""

from __future__ import annotations

import shlex
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from render.all_files import files
from render.application import load, parse
from render.objects import option_values
from spark_tests.deploy.fields import APACHE, KUBEFLOW, KUBEFLOW_REQUIRED, mistakes
from waltz_spark.errors import OptionError
from waltz_spark.job import log_options, parser

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
APPLICATIONS = sorted((DEPLOY / "applications").glob("*.yaml"))
each = pytest.mark.parametrize("path", APPLICATIONS, ids=[path.stem for path in APPLICATIONS])


def rendered(path: Path, name: str) -> list[dict[str, Any]]:
    text = (DEPLOY / "rendered" / path.stem / name).read_text()
    return [one for one in yaml.safe_load_all(text) if one is not None]


def submitted(path: Path) -> tuple[dict[str, str], list[str]]:
    """Settings of the script, and its program with its arguments."""
    script = (DEPLOY / "rendered" / path.stem / "spark-submit.sh").read_text()
    words = shlex.split(script[script.index("exec spark-submit") :].replace("\\\n", " "))
    conf = {}
    for flag, value in pairwise(words):
        if flag == "--conf":
            key, _, text = value.partition("=")
            conf[key] = text
    return conf, words[words.index("$@") + 1 :]


def test_every_job_has_an_application() -> None:
    jobs = {path.name for path in (DEPLOY.parent / "jobs").glob("*.py")} - {"log_totals.py"}
    assert {Path(load(path).main).name for path in APPLICATIONS} == jobs


@each
def test_what_is_rendered_is_up_to_date(path: Path) -> None:
    folder = DEPLOY / "rendered" / path.stem
    expected = files(load(path))
    assert {found.name: found.read_text() for found in folder.iterdir()} == expected


@each
def test_the_operators_know_every_field(path: Path) -> None:
    (kubeflow,), (apache,) = rendered(path, "kubeflow.yaml"), rendered(path, "apache.yaml")
    assert kubeflow["apiVersion"] == "sparkoperator.k8s.io/v1beta2"
    assert apache["apiVersion"] == "spark.apache.org/v1"
    assert mistakes(kubeflow["spec"], KUBEFLOW) == []
    assert kubeflow["spec"].keys() >= KUBEFLOW_REQUIRED
    assert mistakes(apache["spec"], APACHE) == []


@each
def test_the_three_ways_say_the_same(path: Path) -> None:
    conf, program = submitted(path)
    (kubeflow,), (apache,) = rendered(path, "kubeflow.yaml"), rendered(path, "apache.yaml")
    (driver,), (executor,) = rendered(path, "driver-pod.yaml"), rendered(path, "executor-pod.yaml")
    one, other = kubeflow["spec"], apache["spec"]
    assert [one["mainApplicationFile"], *one["arguments"]] == program
    assert [other["pyFiles"], *other["driverArgs"]] == program
    ours = {
        key: value for key, value in conf.items() if "odTemplate" not in key and ".driver.pod.name" not in key
    }
    assert other["sparkConf"] == ours
    assert one["sparkConf"].items() <= ours.items()
    assert one["image"] == ours["spark.kubernetes.container.image"]
    assert one["driver"]["serviceAccount"] == ours["spark.kubernetes.authenticate.driver.serviceAccountName"]
    assert one["executor"]["instances"] == int(ours["spark.executor.instances"])
    assert one["executor"]["cores"] == int(ours["spark.executor.cores"])
    assert one["executor"]["memory"] == ours["spark.executor.memory"]
    for template, rest in ((driver, "driver"), (executor, "executor")):
        pod = {"metadata": template["metadata"], "spec": template["spec"]}
        assert one[rest]["template"] == other[f"{rest}Spec"]["podTemplateSpec"] == pod


@each
def test_pods_are_restricted(path: Path) -> None:
    for name in ("driver-pod.yaml", "executor-pod.yaml"):
        (pod,) = rendered(path, name)
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {mount["name"] for mount in container["volumeMounts"]} == {
            one["name"] for one in spec["volumes"]
        }


@each
def test_objects_belong_together(path: Path) -> None:
    application = load(path)
    found = {one["kind"]: one for one in rendered(path, "objects.yaml")}
    assert found["RoleBinding"]["roleRef"]["name"] == found["Role"]["metadata"]["name"]
    assert found["RoleBinding"]["subjects"][0]["name"] == found["ServiceAccount"]["metadata"]["name"]
    assert ("PodDisruptionBudget" in found) is application.streaming
    labels = found["ServiceAccount"]["metadata"]["labels"]
    for name in ("driver-pod.yaml", "executor-pod.yaml"):
        (pod,) = rendered(path, name)
        assert found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
        assert labels.items() <= pod["metadata"]["labels"].items()
    (monitor,) = rendered(path, "pod-monitor.yaml")
    (driver,) = rendered(path, "driver-pod.yaml")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= driver["metadata"]["labels"].items()
    ports = {port["name"] for port in driver["spec"]["containers"][0]["ports"]}
    assert {end["port"] for end in monitor["spec"]["podMetricsEndpoints"]} == ports


@each
def test_a_job_reads_the_options_of_its_config_map(path: Path, tmp_path: Path) -> None:
    options = next(one for one in rendered(path, "objects.yaml") if one["kind"] == "ConfigMap")["data"]
    (tmp_path / "options.yaml").write_text(options["options.yaml"])
    given = parser("a job").parse_args(["--options-file", str(tmp_path / "options.yaml")])
    found = log_options(given)
    of_zookeeper = found.get("zookeeper.connectString") == "ledger-zookeeper.waltz.svc:2181"
    assert of_zookeeper is not (found.get("servers") == "ledger.waltz.svc:55180")
    assert found["client.ssl.keyStore.location"] == "/etc/waltz/tls"


def test_an_application_that_is_given_servers_is_kept_from_zookeeper() -> None:
    """No port of it in the NetworkPolicy, and no label that lets a pod in."""
    lists = next(path for path in APPLICATIONS if path.stem == "lake-export")
    for path in APPLICATIONS:
        ports = {
            port["port"]
            for one in rendered(path, "objects.yaml")
            if one["kind"] == "NetworkPolicy"
            for rule in one["spec"]["egress"]
            for port in rule.get("ports", ())
        }
        (pod,) = rendered(path, "executor-pod.yaml")
        assert 55180 in ports
        assert ({2181, 2281} <= ports) is (path != lists)
        assert ("waltz.dev/client" in pod["metadata"]["labels"]) is (path != lists)


@pytest.mark.parametrize("wanted", [True, False])
def test_the_secret_s_files_are_for_zookeeper_too_where_tls_is_wanted(wanted: bool) -> None:
    application = load(APPLICATIONS[0])
    options = {**application.options, "zookeeper.ssl.enabled": wanted}
    application = application.model_copy(update={"options": options})
    found = option_values(application)
    assert (found.get("zookeeper.ssl.trustStore.location") == "/etc/waltz/tls") is wanted
    assert (found.get("zookeeper.ssl.keyStore.location") == "/etc/waltz/tls") is wanted


def test_a_password_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hush\n")
    arguments = [
        "--option",
        "zookeeper.connectString=a:1",
        "--secret",
        f"client.ssl.keyStore.password={tmp_path}/password",
    ]
    assert log_options(parser("a job").parse_args(arguments))["client.ssl.keyStore.password"] == "hush"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "where is the log"),
        (["--options-file", "/nowhere.yaml"], "/nowhere.yaml"),
        (["--option", "a"], "must be NAME=VALUE"),
        (["--secret", "a=/nowhere"], "--secret a"),
    ],
)
def test_mistakes_of_a_command_line(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WALTZ_OPTIONS_FILE", raising=False)
    with pytest.raises(OptionError, match=message):
        log_options(parser("a job").parse_args(arguments))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "is not YAML"),
        ("- 1", "must be a mapping"),
        ("name: Upper", "name:"),
        (
            "name: a\nnamespace: b\nimage: c\nmain: d\noptions: {}\nstreaming: true",
            "needs one, for its checkpoint",
        ),
        (
            "name: a\nnamespace: b\nimage: c\nmain: d\noptions: {}\nexecutor: {instancs: 3}",
            r"executor.instancs",
        ),
        (
            "name: a\nnamespace: b\nimage: c\nmain: d\noptions: {Zookeeper.Auth: 'me:hush'}",
            "options: Zookeeper.Auth would be in a ConfigMap: .* secretOptions, and the option in secretOptionNames",
        ),
        (
            "name: a\nnamespace: b\nimage: c\nmain: d\noptions: {client.ssl.trustStore.password: hush}",
            "options: client.ssl.trustStore.password would be in a ConfigMap",
        ),
    ],
)
def test_mistakes_in_a_description_are_one_line(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as error:
        parse(text, "app.yaml")
    assert "\n" not in str(error.value)
    assert "hush" not in str(error.value)


def test_the_entrypoint_and_the_scripts_are_shell() -> None:
    scripts = [DEPLOY / "entrypoint.sh", *DEPLOY.glob("rendered/*/spark-submit.sh")]
    for script in scripts:
        subprocess.run(["sh", "-n", str(script)], check=True)


def test_the_entrypoint_starts_an_executor_with_every_option(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nfor one in "$@"; do echo "$one"; done\n')
    java.chmod(0o755)
    names = (
        "DRIVER_URL",
        "EXECUTOR_ID",
        "EXECUTOR_CORES",
        "APPLICATION_ID",
        "EXECUTOR_POD_IP",
        "RESOURCE_PROFILE_ID",
        "EXECUTOR_POD_NAME",
    )
    environment = {
        "PATH": "/usr/bin:/bin",
        "JAVA_HOME": str(tmp_path),
        "SPARK_HOME": "/spark",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_JAVA_OPT_0": "-Dfirst=1",
        "SPARK_JAVA_OPT_1": "-Dsecond=two words",
        **{f"SPARK_{name}": name.lower() for name in names},
    }
    done = subprocess.run(
        ["sh", str(DEPLOY / "entrypoint.sh"), "executor"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    words = done.stdout.splitlines()
    assert words[:4] == ["-Dfirst=1", "-Dsecond=two words", "-Xms512m", "-Xmx512m"]
    assert words[words.index("--podName") + 1] == "executor_pod_name"
    assert set(words) >= {name.lower() for name in names}
