"""Configuration of every role: the keys of release 0.13.2, checked; unknown ones refused, with the role that
has them or the name that was meant.

`RoleSettings` is the base; each role subclasses it (usually through `ZooKeeperSettings`) with one
pydantic field per key, the key itself as alias. A key of 0.13.2 that has no effect here is listed in
`NO_EFFECT` and warned about. Numbers and booleans may be given as strings, as in 0.13.2.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator

from waltz_cluster.config.files import load_file
from waltz_cluster.config.unknown_keys import hint, nearest
from waltz_cluster.errors import ConfigError
from waltz_cluster.paths import check_root
from waltz_protocol.aio.tls import ClientTls, TlsSettings, client_context
from waltz_protocol.types import can_be_host

_log = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)
S_co = TypeVar("S_co", bound=BaseModel, covariant=True)

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "NOTSET")
"""All that `logging` knows, in capitals or not."""
ZOOKEEPER_TLS = "zookeeper.ssl"
"""The prefix of what protects the connection to ZooKeeper."""


class TlsOptions(BaseModel):
    """The keys below one TLS prefix (`server.ssl`, `storage.ssl`, `client.ssl`, `ssl`, `zookeeper.ssl`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    enabled: bool = Field(default=True, alias="enabled")
    allow_unverified: bool = Field(default=False, alias="allowUnverified")
    verify_host_name: bool = Field(default=True, alias="verifyHostName")
    key_store: str | None = Field(default=None, alias="keyStore.location")
    key_store_password: str | None = Field(default=None, alias="keyStore.password", repr=False)
    key_store_type: str = Field(default="JKS", alias="keyStore.type")
    key_file: str | None = Field(default=None, alias="keyStore.keyFile")
    """Ours: a private key that is not in the key store."""
    trust_store: str | None = Field(default=None, alias="trustStore.location")
    trust_store_password: str | None = Field(default=None, alias="trustStore.password", repr=False)
    trust_store_type: str = Field(default="JKS", alias="trustStore.type")
    key_manager_algorithm: str | None = Field(default=None, alias="keyManager.algorithm")
    trust_manager_algorithm: str | None = Field(default=None, alias="trustManager.algorithm")


_TLS_KEYS = tuple(str(field.alias) for field in TlsOptions.model_fields.values())
_TLS_NO_EFFECT = ("keyManager.algorithm", "trustManager.algorithm")


def tls_keys(prefix: str) -> tuple[str, ...]:
    """All keys below one TLS prefix."""
    return tuple(f"{prefix}.{key}" for key in _TLS_KEYS)


class Conflict(NamedTuple):
    """Values that are right one by one, and not together: of these keys, and what is wrong."""

    keys: tuple[str, ...]
    text: str


class Checked(NamedTuple, Generic[S_co]):
    """Settings with all their mistakes.

    What is made of `settings` is sound only where it is made of none of the keys in `wrong`: their values are
    left out, and one that is required is None then. `wrong` has the key that was probably meant, too.
    """

    settings: S_co
    wrong: frozenset[str]
    problems: tuple[str, ...]
    """A line for each mistake: first unknown keys, as they are in the file, then wrong values, then
    conflicts."""


class _Role(NamedTuple):
    """How the file of a role is recognised, and what to say about it."""

    name: str
    takers: str
    needs: str
    starts: tuple[str, ...]
    """Keys that only this role has begin so. A server has keys below `storage.` too."""


_ROLES = (
    _Role("a server", "`waltz-server` takes", "server.port", ("server.",)),
    _Role(
        "a storage node",
        "`waltz-storage` takes",
        "storage.port",
        ("storage.port", "storage.admin.", "storage.jetty.", "storage.directory", "storage.segment."),
    ),
    _Role(
        "a client",
        "clients and the `waltz` command take",
        "cluster.root and no keys of other roles",
        ("client.", "ssl.", "cli.", "servers"),
    ),
)


class RoleSettings(BaseModel):
    """Base of the settings of one role; see the module. `source` says where they came from, for
    messages."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    TLS_PREFIXES: ClassVar[tuple[str, ...]] = ()
    NO_EFFECT: ClassVar[frozenset[str]] = frozenset()
    """Keys of 0.13.2 that are accepted with a warning."""
    FOREIGN_PREFIXES: ClassVar[tuple[str, ...]] = ()
    """Prefixes of keys of other roles that share the file (tools and client read the same one); accepted
    silently, but for those below one of `TLS_PREFIXES`."""

    source: str = Field(default="settings", exclude=True)
    tls: dict[str, TlsOptions] = Field(default_factory=dict)

    @field_validator("log_level", check_fields=False)
    @classmethod
    def _known_level(cls, value: str) -> str:
        if value.upper() not in LOG_LEVELS:
            raise ValueError(f"must be one of {', '.join(LOG_LEVELS)}")
        return value

    @field_validator("bind_host", "graphite_hostname", "graphite_host", check_fields=False)
    @classmethod
    def _possible_host(cls, value: str | None) -> str | None:
        if value and not can_be_host(value):
            raise ValueError("this is no host name")
        return value

    @classmethod
    def keys(cls) -> list[str]:
        """All keys this role knows, TLS keys and keys without effect included."""
        own = [
            str(f.alias) for name, f in cls.model_fields.items() if f.alias and name not in ("source", "tls")
        ]
        return [
            *own,
            *(key for prefix in cls.TLS_PREFIXES for key in tls_keys(prefix)),
            *sorted(cls.NO_EFFECT),
        ]

    @classmethod
    def from_mapping(cls, flat: Mapping[str, object], *, source: str = "settings") -> Self:
        """Check flat keys (see `load_file`) and make the settings; every mistake is one line of the
        ConfigError's `problems`."""
        checked = cls.checked(flat, source=source)
        if checked.problems:
            raise ConfigError(*checked.problems)
        return checked.settings

    @classmethod
    def checked(cls, flat: Mapping[str, object], *, source: str = "settings") -> Checked[Self]:
        """Flat keys with all mistakes that can be found in them; ConfigError for the file of another role, in
        which every key would be one."""
        known, found = cls.keys(), _Found(source)
        fields: dict[str, Any] = {"source": source}
        tls: dict[str, dict[str, object]] = {}
        for key, value in flat.items():
            if key in cls.NO_EFFECT:
                _log.warning("%s: %s is accepted but has no effect", source, key)
            elif key in known:
                prefix = _tls_prefix(key, cls.TLS_PREFIXES)
                if prefix is None:
                    fields[key] = value
                else:
                    _check_tls_key(source, key, prefix)
                    tls.setdefault(prefix, {})[key[len(prefix) + 1 :]] = value
            elif not key.startswith(cls.FOREIGN_PREFIXES) or key.startswith(cls._tls_starts()):
                other = _file_of_another_role(flat, known)
                if other:
                    raise ConfigError(f"{source} {other}")
                found.add(f"unknown key {key}{hint(key, known)}", nearest(key, known) or key)
        fields = {key: value for key, value in fields.items() if value is not None}
        fields["tls"] = {
            prefix: _validated(TlsOptions, options, f"{prefix}.", found) for prefix, options in tls.items()
        }
        for lacking in cls.lacking(fields):
            found.add(f"the key {lacking}", lacking.partition(" ")[0])
        settings = _validated(cls, fields, "", found)
        for conflict in settings.conflicts():
            if found.wrong.isdisjoint(conflict.keys):
                found.add(f"settings: {conflict.text}")
        return Checked(settings, frozenset(found.wrong), tuple(found.problems))

    @classmethod
    def lacking(cls, fields: Mapping[str, object]) -> list[str]:
        """What is not given and is needed, by a rule that concerns several keys: a line for each, from the
        name of the key on."""
        return []

    def conflicts(self) -> Iterable[Conflict]:
        """What is wrong with several keys together. It may be asked of settings that lack required keys."""
        return ()

    @classmethod
    def _tls_starts(cls) -> tuple[str, ...]:
        return tuple(f"{prefix}." for prefix in cls.TLS_PREFIXES)

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """`from_mapping` of a YAML file."""
        return cls.from_mapping(load_file(path), source=str(path))

    def tls_settings(self, prefix: str) -> TlsSettings:
        """The TLS settings under `prefix` (defaults where the file has none)."""
        options = self.tls.get(prefix, TlsOptions())
        return TlsSettings(
            enabled=options.enabled,
            key_store=options.key_store,
            key_store_password=options.key_store_password,
            key_store_type=options.key_store_type,
            trust_store=options.trust_store,
            trust_store_password=options.trust_store_password,
            trust_store_type=options.trust_store_type,
            allow_unverified=options.allow_unverified,
            verify_host_name=options.verify_host_name,
            key_file=options.key_file,
            prefix=prefix,
        )


def _tls_prefix(key: str, prefixes: tuple[str, ...]) -> str | None:
    return next((p for p in prefixes if key.startswith(p + ".") and key[len(p) + 1 :] in _TLS_KEYS), None)


def _check_tls_key(source: str, key: str, prefix: str) -> None:
    if key[len(prefix) + 1 :] in _TLS_NO_EFFECT:
        _log.warning("%s: %s is accepted but has no effect", source, key)


def _role(keys: Iterable[str]) -> tuple[_Role, str] | None:
    """Whose keys these are, and the first one that shows it."""
    present = list(keys)
    found = ((role, key) for role in _ROLES for key in present if key.startswith(role.starts))
    return next(found, None)


def role_of(keys: Iterable[str]) -> str | None:
    """Whose file has these keys: `a server`, `a storage node` or `a client` (which the `waltz` command is
    too); None where only keys of all roles are."""
    found = _role(keys)
    return None if found is None else found[0].name


def _file_of_another_role(flat: Collection[str], known: list[str]) -> str | None:
    """Whose file this is, where it has no key that only the own role has; None when it is no other role's."""
    own, other = _role(known), _role(flat)
    if own is None or other is None:
        return None
    role, key = other
    if any(name.startswith(role.starts) for name in known) or any(n.startswith(own[0].starts) for n in flat):
        return None
    return (
        f"is the file of {role.name} (it has {key}), which {role.takers}; "
        f"give {own[0].name} a file with {own[0].needs}"
    )


class _Found:
    """The mistakes of one file, in the order in which they are found, and the keys that they concern."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[str] = []
        self.wrong: set[str] = set()

    def add(self, problem: str, *keys: str) -> None:
        self.problems.append(f"{self.source}: {problem}")
        self.wrong.update(keys)


def _validated(cls: type[M], fields: Mapping[str, object], prefix: str, found: _Found) -> M:
    """The settings, without those fields in which a mistake is found."""
    try:
        return cls.model_validate(fields)
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
    wrong = {str(mistake["loc"][0]) for mistake in mistakes}
    for mistake in mistakes:
        found.add(_line(mistake, prefix), prefix + str(mistake["loc"][0]))
    lacking: dict[str, Any] = {
        name: (field.annotation, Field(default=None, alias=field.alias))
        for name, field in cls.model_fields.items()
        if field.is_required() and field.alias in wrong
    }
    kind = create_model(cls.__name__, __base__=cls, **lacking) if lacking else cls
    return kind.model_validate({key: value for key, value in fields.items() if key not in wrong})


def _line(error: Mapping[str, Any], prefix: str) -> str:
    key = prefix + ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        return f"the key {key} is required"
    reason = str(error["msg"]).removeprefix("Value error, ")
    return f"{key} = {error['input']!r}: {reason}"


class ZooKeeperSettings(RoleSettings):
    """What every role needs to reach its cluster. Times are milliseconds."""

    TLS_PREFIXES: ClassVar[tuple[str, ...]] = (ZOOKEEPER_TLS,)

    zookeeper_connect_string: str = Field(alias="zookeeper.connectString", min_length=1)
    zookeeper_session_timeout_ms: int = Field(alias="zookeeper.sessionTimeout", gt=0)
    zookeeper_connect_timeout_ms: int = Field(default=10_000, alias="zookeeper.connectTimeout", gt=0)
    cluster_root: str = Field(alias="cluster.root")
    zookeeper_auth_scheme: str = Field(default="digest", alias="zookeeper.auth.scheme")
    """Scheme of the credentials; `digest` takes user:password."""
    zookeeper_auth: str | None = Field(default=None, alias="zookeeper.auth", repr=False)
    """`user:password`; none = no authentication, as 0.13.2."""
    zookeeper_auth_file: str | None = Field(default=None, alias="zookeeper.auth.file")
    """A file that holds the credentials instead (its first line)."""
    zookeeper_acl: str = Field(default="open", alias="zookeeper.acl")
    """Permissions of the znodes created: `open` (everyone, as 0.13.2), `creator` (only these
    credentials), `creator-world-read`, or a comma-separated list of `scheme:id:permissions`."""

    @field_validator("zookeeper_connect_string")
    @classmethod
    def _possible_hosts(cls, value: str) -> str:
        for server in value.partition("/")[0].split(","):
            host = server.strip().partition(":")[0]  # an address in brackets is not looked up
            if host and not can_be_host(host):
                raise ValueError(f"{host!r} is no host name")
        return value

    @field_validator("cluster_root")
    @classmethod
    def _root_is_absolute(cls, root: str) -> str:
        try:
            return check_root(root)
        except ConfigError as error:
            raise ValueError(str(error)) from None

    def zookeeper_tls(self) -> TlsSettings | None:
        """How the connection to ZooKeeper is protected; None, and so plaintext as with 0.13.2, when no key
        below `zookeeper.ssl` is given."""
        return self.tls_settings(ZOOKEEPER_TLS) if ZOOKEEPER_TLS in self.tls else None

    def zookeeper_context(self) -> ClientTls | None:
        """The same, with its files read. TlsSettingsError."""
        tls = self.zookeeper_tls()
        return None if tls is None else client_context(tls)

    def credentials(self) -> tuple[str, str] | None:
        """(scheme, credentials), read from the file when one is named; ConfigError when that fails."""
        if self.zookeeper_auth and self.zookeeper_auth_file:
            raise ConfigError(f"{self.source}: give zookeeper.auth or zookeeper.auth.file, not both")
        if self.zookeeper_auth_file:
            try:
                text = Path(self.zookeeper_auth_file).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"{self.source}: cannot read zookeeper.auth.file: {error}") from None
            credentials = text.partition("\n")[0].strip()
            if not credentials:
                raise ConfigError(
                    f"{self.source}: zookeeper.auth.file: the first line of {self.zookeeper_auth_file} is empty, "
                    "and has to hold the credentials"
                )
            return self.zookeeper_auth_scheme, credentials
        return (self.zookeeper_auth_scheme, self.zookeeper_auth) if self.zookeeper_auth else None


class CliSettings(ZooKeeperSettings):
    """The file of the command-line tools (keys without a role prefix; a client's keys may be beside
    them)."""

    TLS_PREFIXES: ClassVar[tuple[str, ...]] = ("ssl", ZOOKEEPER_TLS)
    FOREIGN_PREFIXES: ClassVar[tuple[str, ...]] = ("client.",)

    zookeeper_session_timeout_ms: int = Field(default=30_000, alias="zookeeper.sessionTimeout", gt=0)

    @classmethod
    def checked(cls, flat: Mapping[str, object], *, source: str = "settings") -> Checked[Self]:
        """As that of every role; a file of applications that do without ZooKeeper is named as such."""
        if "servers" in flat:
            raise ConfigError(
                f"{source} is the file of an application (it has servers); this command works in ZooKeeper: "
                "give it a file with zookeeper.connectString and cluster.root"
            )
        return super().checked(flat, source=source)


class TlsFileSettings(RoleSettings):
    """A file that is read for its TLS keys only: one side of a copy between nodes. Whatever else a role's
    file holds may be beside them."""

    TLS_PREFIXES: ClassVar[tuple[str, ...]] = ("ssl", "server.ssl")
    FOREIGN_PREFIXES: ClassVar[tuple[str, ...]] = ("zookeeper.", "cluster.", "client.", "server.", "storage.")

    def own_tls(self) -> TlsSettings:
        """The keys below `ssl`, or, when there are none, those below `server.ssl`, as 0.13.2 has them."""
        return self.tls_settings(next((prefix for prefix in self.TLS_PREFIXES if prefix in self.tls), "ssl"))
