"""Every command in the documents is run by a test, and what a line of text says of `waltz` or `make` exists.

`COVERED` says of each command in a fenced block which test runs it, or which scenario of `make e2e`, or which
`make` target it is. A command without an entry fails, and so does an entry without a command. The first entry
that fits counts. Blocks of docs/operations.md that carry `run=NAME` are run as they are by
tests/integration/cli/test_procedures.py, which checks itself that it runs all of them; those of
docs/three-machines.md likewise by tests/integration/cli/test_three_machines.py, those of
docs/upgrade-from-0.13.2.md by tests/interop/live/test_rolling_upgrade.py, where a build of 0.13.2 is
at hand.
"""

import re
import shlex
import subprocess
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest

from tests.integration.cli.blocks import Block, blocks
from tests.integration.cli.lines import lines_of
from tests.integration.cli.test_benchmark_lines import BENCHMARKS, TOO_LONG
from tests.repo.command_tree import commands
from tests.repo.files import ROOT

PROGRAMS = (
    "waltz", "waltz-storage", "waltz-server", "make", "pip", "kubectl", "kustomize", "docker", "helm", "curl", "kill",
    "cd", "export", "echo", "cp", "systemctl", "python", "python3", "pytest", "bash", "spark-submit", ".venv/bin/waltz",
    ".venv/bin/python", ".venv/bin/pytest", "../../.venv/bin/python",
)  # fmt: skip

LEDGER = "tests/integration/test_ledger.py::test_ten_kills_of_everything_and_the_sums_are_equal"
TUTORIAL = "tests/integration/test_tutorial.py::test_the_tutorial"
UP = "tests/integration/test_local_up.py::test_up_append_tail_stop_and_up_again_finds_all_data"
DOCUMENTS = "tests/integration/cli/test_documents.py"
BENCHMARK_LINES = "tests/integration/cli/test_benchmark_lines.py"
SERVICES = f"{DOCUMENTS}::test_lines_of_the_services"
INSTALL = "tests/e2e/scenarios/start.py::install"
SPARK_JOB = "tests/e2e/scenarios/spark.py::streaming"
EXAMPLES = "tests/e2e/scenarios/examples.py::apply_all"
PACKAGES = "tests/packages"
APPLICATION = "test_an_application_with_the_client_alone_appends_and_reads_on_a_cluster_from_wheels"
INSTALLED = "tests/integration/test_install_lines.py"

COVERED: list[tuple[str, str, str]] = [
    # file, pattern of the command, the test or the scenario of `make e2e` that runs it, or the target it is
    ("README.md", r"make demo", "tests/integration/test_demo.py::test_demo_passes_over_kills_of_a_storage_node_and_a_server"),
    ("README.md", r"make test", "make test"),
    ("README.md", r"make setup", "make setup"),
    ("README.md", r"\.venv/bin/waltz local up .*", UP),
    ("README.md", r".*", f"{DOCUMENTS}::test_commands_of_the_readme"),
    ("bench/README.md", r"make bench", "make bench"),
    ("bench/README.md", r".* -m bench --.*", f"{BENCHMARK_LINES}::test_benchmark_lines_in_short"),
    ("bench/README.md", r".* -m bench\.limit .*", f"{BENCHMARK_LINES}::test_the_line_of_the_yardstick"),
    ("docs/applications.md", r"pip install .*", f"{INSTALLED}::test_the_line_for_applications"),
    ("docs/five-minutes.md", r"make setup", "make setup"),
    ("docs/five-minutes.md", r".*local up .*|.*seats\.py (east|west)",
     "tests/integration/test_five_minutes.py::test_the_page"),
    ("docs/operations.md", r"waltz zk export .*|waltz zk import .*",
     "tests/integration/cli/test_tree_files.py::test_an_export_brings_the_cluster_back"),
    ("docs/operations.md", r"waltz storage (remove|add)-partition .*|systemctl restart waltz-server@h1",
     "tests/integration/cli/test_refused_replica.py::test_a_fork_is_named_by_every_command_and_filled_anew"),
    ("docs/operations.md", r"waltz storage validate",
     "tests/integration/cli/test_as_0_13_2.py::test_storage_list_and_validate"),
    ("docs/operations.md", r"cp -a /backup/.*|systemctl start .*|waltz doctor|waltz cluster verify .*",
     "tests/integration/cli/test_lost_disks.py::test_copies_of_different_moments_hold_what_was_acknowledged_before_the_first"),
    ("docs/operations.md", r"waltz storage forget --keep .*",
     "tests/integration/cli/test_lost_disks.py::test_all_copies_were_reset_and_one_of_them_is_taken_as_it_is"),
    ("docs/operations.md", r"waltz disk settle .*", "tools/tests/tools_tests/test_disk.py::test_settle_brings_a_crashed_directory_into_the_plain_state"),
    ("docs/operations.md", r"waltz zk rebuild .*",
     "tests/integration/cli/test_tree_files.py::test_without_any_export_the_nodes_say_what_there_is"),
    ("docs/testing.md", r".*tests\.sim --(seeds|replay) .*", f"{DOCUMENTS}::test_lines_of_the_testing_page"),
    ("docs/tutorial.md", r"kill -9 .*", LEDGER),
    ("docs/tutorial.md", r"\.venv/bin/pytest -s tests/integration/test_ledger.py", "make integration"),
    ("docs/tutorial.md", r".*", TUTORIAL),
    ("examples/go-client/README.md", r"\.venv/bin/waltz local up .*", UP),
    ("examples/go-client/README.md", r".*", "tests/integration/test_go_client.py::test_both_clients_see_the_same_log_and_the_same_locks"),
    ("examples/inventory/README.md", r".*", "tests/integration/test_inventory_page.py::test_the_page"),
    ("examples/ledger/README.md", r".*", "tests/integration/test_ledger_branch.py::test_its_page"),
    ("manifests/compose/README.md", r".*", "tests/integration/test_compose.py::test_the_commands_of_the_page"),
    ("services/server/README.md", r".*CONFIG\.yaml", SERVICES),
    ("services/storage/README.md", r".*CONFIG\.yaml", SERVICES),
    ("tools/README.md", r"waltz local up .*", UP),
    ("tools/README.md", r"waltz tail --from 0 --follow",
     "tests/integration/test_local_up.py::test_follow_shows_what_is_appended_and_a_killed_process_comes_back"),
    ("tools/README.md", r".*", f"{DOCUMENTS}::test_commands_of_the_tools"),
    # Need a Kubernetes cluster, or Spark on one.
    ("docs/operator.md", r"helm .*|kubectl .*install\.yaml",
     "operator/tests/operator_tests/apiserver/test_install.py::test_the_lines_of_the_page"),
    ("docs/operator.md", r"kubectl .*(manifests/base|rollout status .*)", INSTALL),
    ("docs/operator.md", r"kubectl (create namespace waltz|.*overlays/namespaced)",
     "tests/e2e/scenarios/uninstall.py::namespaced"),
    ("docs/operator.md", r"kubectl .*ledger\.yaml", EXAMPLES),
    ("docs/operator-first-write.md", r"kubectl .*", "tests/e2e/scenarios/first_write.py::follow_the_page"),
    ("docs/operator.md", r"kubectl (get|wait) .*", INSTALL),
    ("docs/operator-changes.md", r"kubectl annotate waltzmigration.*",
     "operator/tests/operator_tests/plan/test_deadline.py::test_past_the_point_of_no_return_it_is_left_and_a_retry_finishes_it"),
    ("docs/operator-zookeeper.md", r"waltz k8s shell C --admin -- sh .*", "tests/e2e/scenarios/lost_tree.py::bring_back"),
    ("docs/operator-zookeeper.md", r"waltz k8s shell C --admin -- waltz zk rebuild .*",
     "tests/e2e/scenarios/lost_tree.py::rebuild"),
    ("docs/operator-releases.md", r"waltz k8s upgrade .*",
     "tools/tests/tools_tests/test_k8s.py::test_an_upgrade_is_planned_or_begun_or_refused"),
    ("docs/operator-definitions.md", r"kubectl (get|patch) .*",
     "operator/tests/operator_tests/apiserver/test_conversion.py::test_the_stored_version_is_exchanged_as_the_page_says"),
    ("docs/console.md", r"waltz console .*", "tests/integration/test_console.py::test_the_console_of_a_real_cluster"),
    ("docs/findings.md", r"waltz .*", "tests/integration/cli/test_beyond.py::test_a_node_that_hangs_is_named_with_exit_code_3"),
    ("docs/install.md", r"make wheels", "make wheels"),
    ("docs/install.md", r"pip install .*", f"{PACKAGES}/test_installed.py::{APPLICATION}"),
    ("docs/spark.md", r"spark-submit --py-files .*", f"{PACKAGES}/test_py_files.py::test_spark_submit_takes_it"),
    ("docs/spark.md", r"pip install .*|export PYSPARK_PYTHON=.*", f"{INSTALLED}::test_the_lines_for_spark"),
    ("docs/spark.md", r"python -m render .*", f"{DOCUMENTS}::test_the_rendering_line_of_the_spark_page"),
    ("docs/spark.md", r"docker build .*", "tests/e2e/images.py::build"),
    ("docs/spark.md", r"cd .*|.*objects\.yaml|.*spark-submit\.sh", SPARK_JOB),
    ("docs/spark.md", r"kubectl apply .*(kubeflow|apache)\.yaml", EXAMPLES),
]  # fmt: skip


IN_SHORT = {
    # make target -> the test that runs its program, in short; or another target, or CI, that runs it
    "demo": "tests/integration/test_demo.py::test_demo_passes_over_kills_of_a_storage_node_and_a_server",
    "bench": f"{BENCHMARK_LINES}::test_benchmark_lines_in_short",
    "demo-spark": "tests/integration/test_demo_spark.py::test_the_spark_demo_passes_with_few_rows",
    "soak": "tests/integration/test_soak.py::test_deleted_directory_and_older_copy_under_load",
    "sim": "tests/sim/test_simulation.py::test_seeds_are_clean",
    "mutants": "tests/sim/test_mutants.py::test_some_planted_bugs_are_found_at_the_seeds_noted",
    "mutants-unit": "tests/unit_mutants/test_run.py::test_a_bug_is_noticed_where_it_is_and_nowhere_else",
    "nemesis": "tests/integration/test_nemesis.py::test_a_minute_of_faults_loses_nothing",
    "fuzz": "tests/fuzz/test_corpus.py::test_random_changes_are_handled",
    "images": "tests/e2e/images.py::build",
    **{f"image-{name}": "images" for name in ("storage", "server", "operator", "tools", "zookeeper", "spark")},
    "wheels": f"{PACKAGES}/test_built.py::test_nothing_is_missing_left_over_or_of_another_version",
    "release-check": f"{PACKAGES}/test_release_check.py::test_each_disagreement_is_one_sentence",
    "interpreters": "test-long",
    "check": ".ci/run", "test": ".ci/run", "test-long": ".ci/run", "e2e": ".ci/run",
    "unit-spark-oldest": "test-long", "types-as-user": "test-long", "docs": "test-long", "unit": "test", "simulation": "test", "integration": "test", "setup": "test",
}  # fmt: skip
BY_HAND = {"fmt", "lock", "clean", "coverage", "e2e-long", "helm"}
"""Change the working tree, or take long: people run them, and no block of a document has one of them."""


@cache
def _documents() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [ROOT / name for name in sorted(listed.stdout.splitlines()) if (ROOT / name).is_file()]


def _is_shell(block: Block) -> bool:
    if block.language in ("sh", "bash", "console", "shell"):
        return True
    first = [line.split(" ", 1)[0] for line in block.text.splitlines() if line.strip()]
    return block.language == "" and any(word in PROGRAMS for word in first)


@cache
def _commands() -> list[tuple[str, int, str]]:
    """File, line of the block, command; without the blocks that are followed by name."""
    return [
        (block.file, block.line, command)
        for path in _documents()
        for block in blocks(path, ROOT)
        if _is_shell(block) and block.run is None
        for command in block.commands
    ]


def _entry(file: str, command: str) -> str | None:
    for where, pattern, how in COVERED:
        if where == file and re.fullmatch(pattern, command):
            return how
    return None


def test_every_command_in_a_block_has_an_entry() -> None:
    lost = [
        f"{file}:{line}: {command}" for file, line, command in _commands() if _entry(file, command) is None
    ]
    assert lost == [], "say in COVERED which test runs them"


def test_every_entry_has_a_command() -> None:
    known = _commands()
    idle = [
        (where, pattern)
        for where, pattern, _ in COVERED
        if not any(file == where and re.fullmatch(pattern, command) for file, _, command in known)
    ]
    assert idle == []


def test_commands_stand_in_fences() -> None:
    """Where they are seen by these tests: not in blocks that are only indented."""
    wrong = []
    for path in _documents():
        text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        wrong += [
            f"{path.relative_to(ROOT)}: {line}"
            for line, word in re.findall(r"^\n {4,}((\S+) .*)$", text, re.MULTILINE)
            if word in PROGRAMS
        ]
    assert wrong == []


def test_no_block_has_what_people_run_by_hand() -> None:
    named = {command.split()[1] for _, _, command in _commands() if re.match(r"make [a-z]", command)}
    assert not named & BY_HAND


def test_every_target_is_run_by_something() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", text, re.MULTILINE))
    assert targets == {*IN_SHORT, *BY_HAND}
    runs = dict(re.findall(r"^([a-z][a-z0-9-]*):(.*)", text, re.MULTILINE))
    for target, how in IN_SHORT.items():
        if how == ".ci/run":
            assert f"make {target}\n" in (ROOT / how).read_text()
        elif "::" not in how:
            assert target in runs[how].split() or any(
                target in runs[each].split() for each in runs[how].split()
            )


@pytest.mark.parametrize(
    "how", sorted({how for _, _, how in COVERED} | {how for how in IN_SHORT.values() if "::" in how})
)
def test_what_an_entry_names_exists(how: str) -> None:
    if how.startswith("make "):
        assert how[5:] in IN_SHORT
        return
    file, _, name = how.partition("::")
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), how


def test_blocks_that_are_followed_by_name_are_in_procedures_only() -> None:
    named = {block.file for path in _documents() for block in blocks(path, ROOT) if block.run is not None}
    assert named == {"docs/operations.md", "docs/three-machines.md", "docs/upgrade-from-0.13.2.md"}


@cache
def _inline() -> list[tuple[str, str]]:
    """File and what is between back-quotes and begins with waltz or make."""
    found = []
    for path in _documents():
        text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        found += [
            (str(path.relative_to(ROOT)), match) for match in re.findall(r"`((?:waltz|make) [^`\n]+)`", text)
        ]
    return found


def test_what_the_text_says_of_waltz_and_make_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wrong = [f"{file}: {command}" for file, command in _inline() if not _exists(command, targets)]
    assert wrong == []


def _exists(command: str, targets: set[str]) -> bool:
    words = [word.strip("[]…()") for word in re.split(r"[\s|]+", command) if word.strip("[]…()")]
    if words[0] == "make":
        return words[1] in targets or words[1].startswith("-")
    words = words[1:]
    if words[0].startswith(("-", "<", "CONF")):
        return True
    tree = commands()
    for length in (2, 1):
        name = " ".join(words[:length])
        if name in tree:
            options = {word.split("=", 1)[0].rstrip(",;.") for word in words[length:] if word.startswith("-")}
            return {option for option in options if not re.fullmatch(r"-\d+", option)} <= tree[name] | {
                "--help",
                "-h",
            }
    words = [word for word in words if word not in ("-h", "--help")]
    return any(known == words[0] or known.startswith(words[0] + " ") for known in tree) and len(words) == 1


def test_every_command_line_of_a_block_is_understood_by_our_tree() -> None:
    wrong = []
    every = _commands() + [
        (block.file, block.line, command)
        for path in _documents()
        for block in blocks(path, ROOT)
        if block.run is not None
        for command in block.commands
    ]
    for file, line, command in every:
        for part in re.split(r"\s*[|;]\s*", command):
            words = list(takewhile(lambda word: word != "--", shlex.split(part)))  # then another program's
            if (
                words
                and words[0].removeprefix(".venv/bin/") == "waltz"
                and not _exists(f"waltz {' '.join(words[1:])}", set())
            ):
                wrong.append(f"{file}:{line}: {part}")
    assert wrong == []


def test_every_line_of_the_benchmarks_has_a_short_form_that_is_run() -> None:
    for line in lines_of("bench/README.md", r"-m bench "):
        assert any(re.search(rf"-m bench {has}\b", line) for has in (*BENCHMARKS, *TOO_LONG)), line
