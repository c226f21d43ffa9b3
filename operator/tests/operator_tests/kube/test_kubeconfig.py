"""A kubeconfig that cannot be used: one line that says why."""

from pathlib import Path

import pytest

from waltz_operator.kube import config
from waltz_operator.kube.errors import KubeConfigError

_NO_USER = """
apiVersion: v1
kind: Config
current-context: one
contexts: [{name: one, context: {cluster: one, user: one}}]
clusters: [{name: one, cluster: {server: "https://127.0.0.1:1"}}]
users: 5
"""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [1,", "the Kubernetes configuration is not valid YAML: .*line 1"),
        (b"\xff\xfe\x00", "the Kubernetes configuration cannot be read: "),
        (b"", "is no kubeconfig"),
        (b"- a\n- b\n", "is no kubeconfig"),
        (b"text", "is no kubeconfig"),
        (b"contexts: 5\ncurrent-context: a\n", "is no kubeconfig|cannot be used"),
        (_NO_USER.encode(), "is no kubeconfig|cannot be used"),
        (b"a: 1\n", "the Kubernetes configuration cannot be used: "),
    ],
)
async def test_what_is_no_kubeconfig_is_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(KubeConfigError, match=said) as raised:
        await config.load(str(path))
    assert "\n" not in str(raised.value)
