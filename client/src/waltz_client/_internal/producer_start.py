"""The beginning of an instance of a named producer, before its client is there."""

from __future__ import annotations

from waltz_client._internal.core import ClientCore
from waltz_client._internal.discovery import Discovery
from waltz_client._internal.link import LinkSettings
from waltz_client._internal.producer import Producer
from waltz_client.errors import ConfigError
from waltz_client.settings import ClientSettings
from waltz_cluster.serializers import Checkpoint, ProducerRecord
from waltz_protocol.backoff import Random
from waltz_protocol.messages.producers import ProducerMountRequest

LEAST_CHECKPOINT_MS_OVER_SERVERS = 1000
"""Between two checkpoints: servers take two requests a second of a connection, and one that they refuse is
asked of another server, on a connection of its own."""


async def begin_producer(
    name: str, settings: ClientSettings, discovery: Discovery, link_settings: LinkSettings, random: Random
) -> Producer:
    """An instance with an epoch of its own. A producer that never was there is made: its client id is in no
    log, so its numbers are looked for from the high-water marks of now on (from the beginning of a partition
    that does not answer within `client.connectTimeout`). ConfigError, and what the registry raises."""
    registry = discovery.producers
    if settings.max_protocol_version < ProducerMountRequest.SINCE:
        raise ConfigError(
            f"a named producer needs version {ProducerMountRequest.SINCE} of the protocol: "
            f"client.maxProtocolVersion is {settings.max_protocol_version}"
        )
    if await registry.find(name) is None:
        client_id = await discovery.new_client_id()
        core = ClientCore(settings, discovery, client_id, None, link_settings, random)
        try:
            core.start()
            marks = await core.partitions.all_marks(settings.connect_timeout_ms / 1000)
        finally:
            await core.close()
        checkpoints = {partition_id: Checkpoint(mark, mark) for partition_id, mark in enumerate(marks)}
        await registry.create(name, ProducerRecord(client_id, 0, checkpoints))
    record = await registry.raise_epoch(name)
    return Producer(name, record, registry, checkpoint_ms(settings) / 1000, random)


def checkpoint_ms(settings: ClientSettings) -> int:
    """How often checkpoints are written."""
    least = LEAST_CHECKPOINT_MS_OVER_SERVERS if settings.servers else 0
    return max(settings.producer_checkpoint_ms, least)
