"""`waltz_cluster/config/role_keys.py` is made from the settings classes, because no role can import another
one's; WALTZ_WRITE_DOCS=1 writes it, otherwise it must be up to date."""

import os
from pathlib import Path

from waltz_client.settings import ClientSettings
from waltz_cluster.config import role_keys
from waltz_cluster.config.settings import CliSettings, RoleSettings, ZooKeeperSettings
from waltz_server.settings import ServerSettings
from waltz_storage.settings import StorageSettings

MODULE = Path(role_keys.__file__)
ROLES: dict[str, type[RoleSettings]] = {
    "server": ServerSettings,
    "storage": StorageSettings,
    "client": ClientSettings,
    "tools": CliSettings,
}
HEAD = '''"""The keys of each role that not all have, made from the settings classes by `tests/repo/test_role_keys.py`
(WALTZ_WRITE_DOCS=1 writes it again)."""

from collections.abc import Mapping

ROLE_KEYS: Mapping[str, frozenset[str]] = {
'''


def rendered() -> str:
    text, common = HEAD, set(ZooKeeperSettings.keys())
    for role, settings in ROLES.items():
        text += f'    "{role}": frozenset(\n        {{\n'
        own = [key for key in list(settings.keys()) if key not in common]
        text += "".join(f'            "{key}",\n' for key in own)
        text += "        }\n    ),\n"
    return text + "}\n"


def test_the_keys_of_each_role_are_listed() -> None:
    if os.environ.get("WALTZ_WRITE_DOCS") == "1":
        MODULE.write_text(rendered())
    assert MODULE.read_text() == rendered(), (
        "run WALTZ_WRITE_DOCS=1 .venv/bin/pytest tests/repo/test_role_keys.py"
    )
