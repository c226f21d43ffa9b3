"""Permissions of znodes, as text and as kazoo has them."""

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id, Permissions

from waltz_cluster.errors import ConfigError

_PERMISSIONS = {
    "r": Permissions.READ,
    "w": Permissions.WRITE,
    "c": Permissions.CREATE,
    "d": Permissions.DELETE,
    "a": Permissions.ADMIN,
}


def acl_text(entry: ACL) -> str:
    """`scheme:id:permissions`."""
    letters = "".join(letter for letter in "cdrwa" if entry.perms & _PERMISSIONS[letter])
    return f"{entry.id.scheme}:{entry.id.id}:{letters}"


def parse_acl(text: str, *, has_credentials: bool) -> list[ACL]:
    """The value of `zookeeper.acl` as kazoo wants it; ConfigError (one line) for anything else."""
    if text == "open":
        return list(OPEN_ACL_UNSAFE)
    if text in ("creator", "creator-world-read"):
        if not has_credentials:
            raise ConfigError(f"zookeeper.acl = {text} needs zookeeper.auth or zookeeper.auth.file")
        return [*CREATOR_ALL_ACL, *(READ_ACL_UNSAFE if text == "creator-world-read" else [])]
    entries = []
    for entry in text.split(","):
        scheme, _, rest = entry.strip().partition(":")
        identity, _, letters = rest.rpartition(":")
        if not scheme or not letters or set(letters) - set(_PERMISSIONS):
            raise ConfigError(
                f"zookeeper.acl: {entry!r} is not open, creator, creator-world-read or scheme:id:permissions (cdrwa)"
            )
        mask = 0
        for letter in letters:
            mask |= _PERMISSIONS[letter]
        entries.append(ACL(mask, Id(scheme, identity)))
    return entries
