"""The layout rules of ARCHITECTURE.md, each guarded by a test."""

import ast
import re
import tomllib
from collections import Counter
from statistics import median

from tests.repo.files import ROOT, members, text_files, tracked_files

MAX_MODULE_LINES = 500
LONGER = {
    "services/server/src/waltz_server/store/recovery.py": "a state machine is not cut in pieces to please a number",
    "client/src/waltz_client/_internal/stream/partition.py": "a state machine, too",
    "client/src/waltz_client/client.py": "one method per call of the library, mostly what it promises",
}
"""And why."""
MAX_FUNCTION_LINES = 70
MEDIAN_MODULE_LINES = 200


def test_operator_folder_never_shadows_the_standard_module() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_every_member_has_readme_source_and_uniquely_named_tests() -> None:
    names: Counter[str] = Counter()
    for member in members():
        assert (member / "README.md").is_file(), member
        packages = [path for path in (member / "src").iterdir() if (path / "__init__.py").is_file()]
        assert len(packages) == 1, f"{member} must hold exactly one package"
        tests = [path for path in (member / "tests").iterdir() if (path / "__init__.py").is_file()]
        assert len(tests) == 1, f"{member}/tests must hold exactly one test package"
        assert tests[0].name.endswith("_tests")
        names[tests[0].name] += 1
    assert names
    assert not [name for name, count in names.items() if count > 1]


def test_pytest_imports_by_path_and_the_root_is_not_a_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "--import-mode=importlib" in settings["addopts"]
    assert not (ROOT / "__init__.py").exists()


def test_modules_stay_small() -> None:
    sizes = {path: len(path.read_text().splitlines()) for path in text_files(".py")}
    long = {str(path.relative_to(ROOT)) for path, size in sizes.items() if size > MAX_MODULE_LINES}
    assert long == LONGER.keys()
    shipped = [size for path, size in sizes.items() if "src" in path.parts and size > 2]
    assert median(shipped) < MEDIAN_MODULE_LINES


def test_functions_stay_small() -> None:
    long: list[str] = []
    for path in text_files(".py"):
        if "src" not in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > MAX_FUNCTION_LINES:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {size} lines")
    assert not long


def test_nothing_names_a_registry_host_or_a_path_of_one_machine() -> None:
    # Spelled in pieces, so that this file does not find itself.
    banned = re.compile(
        "|".join(
            [
                r"pypi\." + "org",
                r"files\.python" + "hosted",
                r"repo1?\.maven",
                r"registry\.npm" + "js",
                "/" + "work/",
                "/" + "root/",
                "/" + "home/",
            ]
        )
    )
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in tracked_files()
        if path.suffix in {".py", ".md", ".toml", ".txt", ".in", ".yaml", ".yml", ".json", ".cfg", ""}
        and path.name != "LICENSE"
        for match in banned.finditer(path.read_text(errors="replace"))
    ]
    assert not found


def test_no_lock_file_with_download_addresses() -> None:
    assert not (ROOT / "uv.lock").exists()
    for pins in (ROOT / "requirements").glob("*.txt"):
        text = pins.read_text()
        assert "--hash=sha256:" in text
        assert "index-url" not in text


def test_no_asserts_guard_data_in_shipped_code() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in text_files(".py")
        if "src" in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert)
    ]
    assert not found
