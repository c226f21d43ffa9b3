"""Planted bugs in named producers of clients that are given servers: what is asked twice, carried out late,
or watched at a server that has gone."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_server = bugs_in("services/server/src/waltz_server")
_cluster = bugs_in("libs/cluster/src/waltz_cluster")
_client = bugs_in("client/src/waltz_client/_internal/directory")

PRODUCER_OVER_SERVERS_BUGS = (
    _server(
        "an_epoch_is_raised_from_whatever_it_is",
        "E8",
        "producers.py",
        "                return await self._store.raise_epoch(name, epoch)\n",
        "                return await self._store.raise_epoch(name)\n",
        "A request that is carried out after its client has another epoch fences that instance.",
    ),
    _cluster(
        "an_epoch_that_is_there_is_given_again",
        "E8",
        "producers.py",
        "                check_epoch(name, record.epoch, to - 1)\n",
        "                if record.epoch == to:\n                    return record\n",
        "An instance whose answer was lost takes the epoch of another one.",
    ),
    _cluster(
        "checkpoints_are_compared_with_an_old_epoch",
        "E8",
        "producers.py",
        "            await self._store.sync(path)  # the epoch may have been raised in another session of ZooKeeper\n",
        "",
        "A server behind the one that raised the epoch takes the record for an older copy, and the instance ends.",
    ),
    _cluster(
        "a_producer_that_a_follower_does_not_show_is_deleted",
        "E8",
        "producers.py",
        "        except ProducerGoneError:\n            await self._store.sync(path)\n",
        "        except ProducerGoneError:\n",
        "A server behind the one that made the producer ends its newest instance.",
    ),
    _server(
        "what_a_closed_connection_asked_for_is_done",
        "E8",
        "producers.py",
        "            if not job.client.closed:\n",
        "            if True:\n",
        "Epochs are raised for instances that nobody waits for.",
    ),
    _server(
        "a_new_epoch_is_not_pushed",
        "E8",
        "producers.py",
        "            informed = list(watched.watchers if epoch != watched.epoch else watched.unanswered)\n",
        "            informed = list(watched.unanswered)\n",
        "The older instance is not informed by the server that it watches.",
    ),
    _server(
        "an_epoch_that_changes_while_it_is_read_is_missed",
        "E8",
        "producers.py",
        "            watched.armed = not watched.fired\n",
        "            watched.armed, watched.fired = True, False\n",
        "The watch has fired, nobody reads again, and no newer instance is ever seen.",
    ),
    _server(
        "each_connection_that_goes_leaves_a_watch_behind",
        "E8",
        "producers.py",
        "        if not (watched.watchers or watched.armed or watched.in_line or watched.reading):\n",
        "        if not (watched.watchers or watched.in_line or watched.reading):\n",
        "Connections that come and go fill the memory of the server with watches.",
    ),
    _server(
        "checkpoints_beyond_all_partitions_are_decoded",
        "E8",
        "producers.py",
        "        if len(body) > self._max_bytes:\n",
        "        if len(body) > 1 << 24:\n",
        "One frame of a stranger holds all partitions of a server up for 150 ms.",
    ),
    _server(
        "who_has_gone_keeps_others_out_of_the_line",
        "E8",
        "producers.py",
        "            self._checkpoints -= len(job.checkpoints)\n        watched = ",
        "            pass\n        watched = ",
        "Connections that come and go fill the line, and no producer gets an answer.",
    ),
    _server(
        "a_write_stays_unanswered",
        "E8",
        "producers.py",
        "                asker.writes = False\n",
        "                pass\n",
        "An instance writes its checkpoints once in its life.",
    ),
    _server(
        "any_number_of_connections_watches_a_producer",
        "E8",
        "producers.py",
        "        if client not in watched.watchers and len(watched.watchers) >= MAX_WATCHERS:\n",
        "        if False:\n",
        "A stranger with 10,000 connections has each new epoch hold the loop up.",
    ),
    _server(
        "any_checkpoint_is_written",
        "E8",
        "producers.py",
        "        if not -1 <= origin <= mark or sequence < -1:\n",
        "        if sequence < -1:\n",
        "A record keeps a checkpoint that no instance can have.",
    ),
    _client(
        "the_epoch_is_not_asked_for_at_the_next_server",
        "E8",
        "session.py",
        "                asked.set_result(None)\n        self._end_watch()\n",
        "                asked.set_result(None)\n",
        "The server that is watched has gone, and the client learns of no newer instance.",
    ),
    _client(
        "the_record_of_a_lost_epoch_is_taken",
        "E8",
        "producers.py",
        "            if answer.code == ProducerCode.DONE:\n                return _record_of(answer)\n"
        "            _check_there(name, answer)\n",
        "            return _record_of(answer)\n",
        "An instance whose epoch is another one's begins all the same, with what the refusal says.",
    ),
)
