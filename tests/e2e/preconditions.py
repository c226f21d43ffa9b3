"""What a run needs on this machine."""

from __future__ import annotations

import shutil
import subprocess

NEEDED = ("docker", "kind", "kubectl")


def what_is_missing() -> str | None:
    """One line that says why there can be no run here; None when there can be one."""
    absent = [name for name in NEEDED if shutil.which(name) is None]
    if absent:
        return f"make e2e needs {', '.join(NEEDED)} on PATH; missing: {', '.join(absent)}"
    answer = subprocess.run(["docker", "info"], capture_output=True, check=False)
    if answer.returncode:
        return "make e2e needs a docker engine that answers; `docker info` failed"
    return None
