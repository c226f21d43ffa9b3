"""Which of several servers a client asks and follows, and the settings that name them."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_tests.test_directory import KEY, OTHER_KEY
from waltz_client import ClientSettings
from waltz_client._internal.directory.sources import OLDER_ROUNDS, Judgement, Sources
from waltz_client.errors import ConfigError
from waltz_cluster.config.settings import CliSettings
from waltz_cluster.errors import ConfigError as ClusterConfigError
from waltz_protocol.directory import Directory
from waltz_protocol.types import Endpoint

# -- settings ------------------------------------------------------------------------------------------------

OF_ZOOKEEPER = {"zookeeper.connectString": "zk:1", "zookeeper.sessionTimeout": 1000, "cluster.root": "/w"}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, r"zookeeper\.connectString is required, or servers in place of ZooKeeper's keys"),
        (
            {"servers": "a:1", **OF_ZOOKEEPER},
            "give servers, or the keys of ZooKeeper, not both: zookeeper.conn",
        ),
        ({"servers": "a:1", "cluster.root": "/w"}, "not both: cluster.root has no meaning with servers"),
        ({"servers": "a:1", "zookeeper.ssl.enabled": True}, "not both: zookeeper.ssl has no"),
        ({"servers": []}, "servers = .*a list of 1 to 1000 addresses"),
        ({"servers": ["a"]}, "'a' is not an address of the form host:port"),
        ({"servers": "a:1", "client.maxProtocolVersion": 4}, r"needs client\.maxProtocolVersion 5"),
        ({"servers": "a:1", "client.maxFrameBytes": 2000}, r"needs client\.maxFrameBytes 65536"),
        ({"client.clusterKey": str(KEY), **OF_ZOOKEEPER}, "clusterKey has a meaning with servers only"),
        ({"servers": "a:1", "client.clusterKey": "x"}, r"client\.clusterKey = 'x'"),
    ],
)
def test_one_way_to_the_cluster_and_a_clear_error_for_two_or_none(keys: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ClientSettings.load(keys)


def test_servers_as_a_list_or_as_one_text() -> None:
    for given_servers in (["a:1", "b:2"], "a:1, b:2", "a:1,b:2,"):
        assert ClientSettings.load({"servers": given_servers}).servers == (Endpoint("a", 1), Endpoint("b", 2))


def test_the_administration_says_that_it_needs_zookeeper() -> None:
    with pytest.raises(ClusterConfigError, match=r"is the file of an application .*works in ZooKeeper"):
        CliSettings.from_mapping({"servers": ["a:1"]})


# -- which source is followed --------------------------------------------------------------------------------

A, B, C = (Endpoint(name, 1) for name in "abc")


def of(version: int, *, key: UUID = KEY, contact: bool = True) -> Directory:
    return Directory(version, "c", key, 4, {server: {} for server in (A, B, C)}, contact)


def test_an_older_directory_is_followed_when_whole_rounds_show_no_newer_one() -> None:
    sources = Sources([A], random.Random(1))
    assert sources.judge(sources.next(), of(9)) is Judgement.FOLLOW
    judged: list[Judgement] = []
    while len(judged) < 3 * (OLDER_ROUNDS + 1):
        server = sources.next()
        judged.append(sources.judge(server, of(4, contact=server != B)))
        if judged[-1].follows:
            break
    assert judged[-1] is Judgement.FOLLOW
    assert len(judged) > 2 * OLDER_ROUNDS
    assert sources.followed == of(4)


def test_a_server_without_zookeeper_never_takes_a_client_back() -> None:
    sources = Sources([A], random.Random(1))
    sources.judge(A, of(9))
    for _ in range(100):
        assert sources.judge(sources.next(), of(8, contact=False)) is Judgement.LEAVE
    assert sources.followed == of(9)


@given(
    st.integers(0, 2**32),
    st.lists(
        st.tuples(st.integers(0, 5), st.booleans(), st.sampled_from((KEY, OTHER_KEY)), st.booleans()),
        max_size=60,
    ),
)
def test_safety_e2_versions_go_back_by_whole_rounds_only_and_never_to_another_cluster(
    seed: int, answers: list[tuple[int, bool, UUID, bool]]
) -> None:
    """Whatever servers answer: one cluster alone is followed, and an older directory only when
    everybody was asked again and again since one of this version was seen."""
    sources = Sources([A, B], random.Random(seed))
    key: UUID | None = None
    for version, contact, whose, answered in answers:
        server = sources.next()
        before, rounds = sources.followed, sources.rounds
        if not answered:
            sources.failed(server, "no answer")
            continue
        one = of(version, key=whose, contact=contact)
        judgement = sources.judge(server, one)
        if key is None:
            key = whose
        if whose != key:
            assert judgement is Judgement.FOREIGN
            assert sources.followed is before
        elif before is None or version >= before.version:
            assert judgement.follows
            assert sources.followed is one
        elif judgement.follows:
            assert rounds >= OLDER_ROUNDS
            assert contact
        else:
            assert sources.followed is before


def test_everybody_is_asked_before_anybody_is_asked_again() -> None:
    sources = Sources([A, B, C], random.Random(3))
    for _ in range(10):
        asked = [sources.next() for _ in range(3)]
        assert set(asked) == {A, B, C}
        for server in asked:
            sources.failed(server, "down")
