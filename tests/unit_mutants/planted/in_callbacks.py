"""Planted bugs in what follows when something that nobody foresaw escapes from a callback of a server."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_bug = bugs_in("services/server/src/waltz_server/store")
_partition = bugs_in("services/server/src/waltz_server/partition")
_server = bugs_in("services/server/src/waltz_server")

CALLBACK_BUGS = (
    _bug(
        "failed_callback_is_forgotten",
        "E1",
        "callbacks.py",
        "            self._on_fault(error)\n",
        "",
        "What raises in a callback of a partition or session leaves it half alive.",
    ),
    _bug(
        "failed_answer_ends_nothing",
        "D2",
        "session_run.py",
        "            self.end(reason)\n            if self._opened_at",
        "            if self._opened_at",
        "A session in which the answer of a storage node could not be handled is never replaced.",
    ),
    _bug(
        "entries_leave_before_they_are_framed",
        "D3",
        "frames.py",
        "        records = self._stored_of(taken) if self.stored else _wire_of(taken)\n",
        "        self.waiting = left\n        records = self._stored_of(taken) if self.stored else _wire_of(taken)\n",
        "Entries of a frame that could not be made are in no frame and do not wait for one.",
    ),
    _partition(
        "what_the_store_was_taking_is_forgotten",
        "E1",
        "append.py",
        "            self._in_flight += map(item_of, batch)  # some may be on their way: a recovery decides\n",
        "",
        "Appends that the store has taken when it fails are neither in flight nor undecided.",
    ),
    _partition(
        "answers_that_could_not_be_sent_are_forgotten",
        "E1",
        "append_answers.py",
        "            self._loop.call_soon(self._send)\n",
        "            self._loop._loop.call_soon(self._send)\n",
        "A client waits for answers that are lost, on a connection that is sound.",
    ),
    _partition(
        "connection_that_is_half_forgotten_ends_nothing",
        "ends",
        "owned_partition.py",
        "            self._loop.run(self._forget, client)\n",
        "            self._forget(client)\n",
        "A partition keeps a part of what a connection that has gone had asked for.",
    ),
    _server(
        "connections_behind_one_that_is_not_forgotten_stay",
        "ends",
        "registry.py",
        "        finally:  # those behind one that could not be forgotten would wait for this forever\n",
        "        except ZeroDivisionError:\n            pass\n        else:\n",
        "After one error no connection that ends is forgotten any longer.",
    ),
)
