"""Which storage nodes of a local cluster have the node journal, for the attacks on real processes."""

from argparse import ArgumentParser
from collections.abc import Mapping
from enum import StrEnum

KEY = "storage.journal.enabled"


class Journals(StrEnum):
    """`SOME`: all but the first storage node."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


def add_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--journal",
        type=Journals,
        choices=list(Journals),
        default=Journals.NONE,
        help="which storage nodes have the node journal (some: all but the first)",
    )


def overrides(journals: Journals) -> Mapping[str, Mapping[str, object]]:
    """For `LocalSettings`. The files are small, so that they are used again under the load."""
    if journals is Journals.NONE:
        return {}
    keys: dict[str, object] = {KEY: True, "storage.journal.fileBytes": 1 << 20, "storage.journal.files": 3}
    return {"storage": keys} | ({"storage-1": {KEY: False}} if journals is Journals.SOME else {})
