"""Paths of all znodes of one cluster below its root (ZooKeeper layout, tree)."""

from dataclasses import dataclass

from waltz_cluster.errors import ConfigError

SERVER_PREFIX = "s_"


def check_root(root: str) -> str:
    """Return `root` as it must be written; raise ConfigError for anything but an absolute, clean path."""
    parts = root.split("/")
    if not root.startswith("/") or any(part in ("", ".", "..") for part in parts[1:]):
        raise ConfigError(
            f"cluster.root must be an absolute ZooKeeper path such as /waltz_cluster, not {root!r}"
        )
    return root


@dataclass(frozen=True, slots=True)
class ClusterPaths:
    """All paths of the cluster with this root."""

    root: str

    def __post_init__(self) -> None:
        check_root(self.root)

    @property
    def ancestors(self) -> tuple[str, ...]:
        """Paths above the root, outermost first."""
        parts = self.root.split("/")[1:-1]
        return tuple("/" + "/".join(parts[: i + 1]) for i in range(len(parts)))

    @property
    def ids(self) -> str:
        return f"{self.root}/ids"

    @property
    def client_ids(self) -> str:
        return f"{self.root}/ids/client"

    @property
    def server_ids(self) -> str:
        return f"{self.root}/ids/server"

    @property
    def server_descriptors(self) -> str:
        return f"{self.root}/serverDescriptors"

    def server_descriptor(self, name: str) -> str:
        return f"{self.root}/serverDescriptors/{name}"

    @property
    def new_server_descriptor(self) -> str:
        """Prefix for the sequential creation of a descriptor."""
        return f"{self.root}/serverDescriptors/{SERVER_PREFIX}"

    @property
    def store(self) -> str:
        return f"{self.root}/store"

    @property
    def assignment(self) -> str:
        return f"{self.root}/store/assignment"

    @property
    def group(self) -> str:
        return f"{self.root}/store/group"

    @property
    def connection(self) -> str:
        return f"{self.root}/store/connection"

    @property
    def partitions(self) -> str:
        return f"{self.root}/store/partition"

    def partition(self, partition_id: int) -> str:
        return f"{self.root}/store/partition/{partition_id}"

    @property
    def admin_lock(self) -> str:
        return f"{self.root}/store/adminLock"

    @property
    def challenges(self) -> str:
        """Ours: parent of the challenges to servers that are suspected."""
        return f"{self.root}/serverChallenges"

    def challenge(self, name: str) -> str:
        """Ours: to the server of the descriptor `name`, which is suspected. Release 0.13.2 never looks at
        it."""
        return f"{self.root}/serverChallenges/{name}"

    @property
    def preferences(self) -> str:
        """Ours: parent of the preferred partitions kept per server endpoint. Release 0.13.2 never looks at
        it."""
        return f"{self.root}/preferredPartitions"

    def preference(self, endpoint: str) -> str:
        return f"{self.root}/preferredPartitions/{endpoint}"

    def producer(self, name: str) -> str:
        """Ours: what is known of the named producer `name`. Release 0.13.2 never looks at it."""
        return f"{self.root}/producers/{name}"

    @property
    def producers(self) -> str:
        """Ours: parent of the named producers."""
        return f"{self.root}/producers"
