"""The description of an application: a YAML file, checked."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from waltz_spark.errors import OptionError
from waltz_spark.options import is_secret

NAME = r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Resources(_Part):
    """Of a driver or an executor. `memory` is Java's; Python's comes on top by `memoryOverheadFactor`."""

    cores: int = Field(default=1, ge=1)
    core_request: str = "500m"
    core_limit: str | None = None
    memory: str = "1g"


class Executors(Resources):
    """The executors. More cores than partitions of the log (times `minPartitions` splits) have nothing to
    do."""

    instances: int = Field(default=2, ge=1)


class Volume(_Part):
    """What outlives the application: checkpoint and results, on a PersistentVolumeClaim named after the
    application.

    Executors write state and results there too: with ReadWriteOnce all pods must be on one node.
    """

    size: str = "10Gi"
    mount_path: str = "/var/lib/waltz-spark"
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"] = "ReadWriteMany"
    storage_class: str | None = None


class Network(_Part):
    """Whom the pods may talk to, besides DNS, the API server and each other: the pods of a WaltzCluster."""

    waltz_namespace: str
    waltz_cluster: str
    api_server_ports: tuple[int, ...] = (443, 6443)


class Application(_Part):
    """One application. `options`: of the data source, in a ConfigMap, and so without passwords;
    `secretOptions`: name of a Secret whose keys are option names and whose values are passwords;
    `tlsSecret`: name of a Secret with tls.crt, tls.key and ca.crt."""

    name: str = Field(pattern=NAME)
    namespace: str
    image: str
    main: str
    arguments: tuple[str, ...] = ()
    streaming: bool = False
    options: dict[str, str | int | bool]
    secret_options: str | None = None
    secret_option_names: tuple[str, ...] = ()
    tls_secret: str | None = None
    volume: Volume | None = None
    network: Network | None = None
    driver: Resources = Resources()
    executor: Executors = Executors()
    memory_overhead_factor: float = Field(default=0.4, ge=0.1, le=2.0)
    node_selector: dict[str, str] = Field(default_factory=dict)
    conf: dict[str, str] = Field(default_factory=dict)
    spark_version: str = "4.3.0"
    monitoring: bool = True

    @property
    def account(self) -> str:
        """ServiceAccount, Role and RoleBinding."""
        return f"{self.name}-driver"

    @property
    def zookeeper(self) -> bool:
        """Whether its pods connect to ZooKeeper: not if the options name servers."""
        return "servers" not in self.options

    @property
    def config_map(self) -> str:
        """The ConfigMap with the options."""
        return f"{self.name}-options"


def parse(text: str, source: str) -> Application:
    """The application in a YAML text; OptionError, one line, for the first mistake."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise OptionError(f"{source} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise OptionError(f"{source}: it must be a mapping")
    try:
        application = Application.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise OptionError(f"{source}: {where}: {first['msg']}") from None
    if application.streaming and application.volume is None:
        raise OptionError(f"{source}: volume: a streaming application needs one, for its checkpoint")
    secret = next(filter(is_secret, application.options), None)
    if secret is not None:
        raise OptionError(
            f"{source}: options: {secret} would be in a ConfigMap: put its value into a Secret, under this key, "
            "name the Secret in secretOptions, and the option in secretOptionNames"
        )
    return application


def load(path: Path) -> Application:
    """The application in a file."""
    try:
        text = path.read_text()
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror}") from None
    return parse(text, str(path))
