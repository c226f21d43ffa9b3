"""What a call to the API server can end with: one small hierarchy, each class says whether repeating the call
can help.

Foreign exceptions (of aiohttp, of the `kubernetes` package) are mapped here and nowhere else.
"""

import json
from collections.abc import Mapping


class KubeError(Exception):
    """Base. `status`: HTTP status, 0 when there was no answer. `reason`: the API server's
    machine-readable word."""

    retriable: bool = False
    user_error: bool = False

    def __init__(self, text: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason


class KubeConfigError(KubeError):
    """No usable kubeconfig and not inside a cluster; one line for a person."""

    user_error = True


class KubeUnavailableError(KubeError):
    """No answer, a timeout, too many requests or a fault of the server: **the outcome of a write is
    unknown**."""

    retriable = True


class KubeNotFoundError(KubeError):
    """The object, or its kind, does not exist."""


class KubeConflictError(KubeError):
    """The object changed, was replaced by another one, exists already, or a field belongs to somebody else.
    Nothing was written."""

    retriable = True


class KubeForbiddenError(KubeError):
    """The operator's role does not permit this."""


class KubeUnauthorizedError(KubeError):
    """The credentials were refused (expired, revoked)."""

    retriable = True


class KubeForeignError(KubeError):
    """An object of the name exists that is somebody else's. Nothing was written."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(
            f"{kind} {name} exists and does not belong to this cluster: rename the cluster, or move that object away"
        )


class KubeInvalidError(KubeError):
    """The API server refused the object itself (schema, validation rule, immutable field)."""


_BY_STATUS: Mapping[int, type[KubeError]] = {
    400: KubeInvalidError,
    401: KubeUnauthorizedError,
    403: KubeForbiddenError,
    404: KubeNotFoundError,
    409: KubeConflictError,
    410: KubeUnavailableError,
    412: KubeConflictError,
    422: KubeInvalidError,
    429: KubeUnavailableError,
}


def error_of(status: int, body: bytes, what: str) -> KubeError:
    """The error for an answer that is not a success. Pure."""
    message, reason, another = "", "", False
    try:
        reported = json.loads(body)
        if isinstance(reported, dict):
            message, reason = str(reported.get("message", "")), str(reported.get("reason", ""))
            another = _another_uid(reported.get("details"))
    except ValueError:
        message = body[:200].decode(errors="replace")
    cls = _BY_STATUS.get(status, KubeUnavailableError if status >= 500 else KubeError)
    if another:
        cls = KubeConflictError
    return cls(f"{what}: {message or f'HTTP {status}'}", status=status, reason=reason)


def _another_uid(details: object) -> bool:
    """Whether a patch was refused because the object of that name has another uid: reported as an invalid
    object, which it is not."""
    causes = details.get("causes") if isinstance(details, Mapping) else None
    if not isinstance(causes, list):
        return False
    return any(isinstance(one, Mapping) and one.get("field") == "metadata.uid" for one in causes)
