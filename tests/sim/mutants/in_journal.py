"""Bugs planted in the node journal: what a crash of a node with a journal would lose."""

from __future__ import annotations

from tests.sim.mutants.mutant import Edit, Mutant

_JOURNAL = "services/storage/src/waltz_storage/engine/journal"
_LOST = ("node_kept", "acknowledged", "fork")

JOURNAL_MUTANTS = (
    Mutant(
        name="small_commits_are_not_synced",
        rule="C7",
        edits=(
            Edit(
                f"{_JOURNAL}/log.py",
                "        self._active.file.sync()\n        self._position += len(raw)\n",
                "        if len(raw) > 2000:\n            self._active.file.sync()\n        self._position += len(raw)\n",
            ),
        ),
        expected=("replicas_settle", "out_of_service", *_LOST),
        how="A node loses power after it has answered a small append.",
        profile="journal",
        found_at=0,
    ),
    Mutant(
        name="only_the_newest_file_of_the_journal_is_replayed",
        rule="C7",
        edits=(
            Edit(
                f"{_JOURNAL}/log.py",
                "    lives.sort()\n    for (before",
                "    lives.sort()\n    del lives[:-1]\n    for (before",
            ),
        ),
        expected=("out_of_service", *_LOST),
        how="A node ends shortly after its journal has begun another file; what the one before holds is missed.",
        profile="journal",
        found_at=36,
    ),
    Mutant(
        name="damaged_journal_is_given_up_in_silence",
        rule="C7",
        edits=(
            Edit(
                f"{_JOURNAL}/directory.py",
                "    except JournalDamagedError as error:\n        raise",
                "    except JournalDamagedError as error:\n        write_plain(control, found.plain)\n        return 0\n        raise",
            ),
        ),
        expected=("journal", *_LOST),
        how="The journal of a killed node is damaged; the node starts without what only the journal held.",
        profile="journal",
        found_at=2,
    ),
    Mutant(
        name="header_is_plain_before_the_replay",
        rule="C7",
        edits=(
            Edit(
                f"{_JOURNAL}/directory.py",
                "    replay = Replay(fs, directory, {CONTROL_FILE_NAME: control})\n",
                "    write_plain(control, found.plain)\n"
                "    replay = Replay(fs, directory, {CONTROL_FILE_NAME: control})\n",
            ),
        ),
        expected=("journal", *_LOST),
        how="Power is lost during the replay: the next start takes the files as they are.",
        profile="journal",
        found_at=2,
    ),
    Mutant(
        name="settled_but_for_the_first_file",
        rule="C7",
        edits=(
            Edit(
                f"{_JOURNAL}/filesystem.py",
                "        for relative in list(file.touched):\n",
                "        for relative in list(file.touched)[1:]:\n",
            ),
        ),
        expected=("out_of_service", "replicas_settle", *_LOST),
        how="A journal file is used again, then power is lost: one of the files lacks what it held.",
        profile="journal",
        found_at=0,
    ),
    Mutant(
        name="failed_commit_is_answered_with_success",
        rule="C7",
        edits=(
            Edit(
                "services/storage/src/waltz_storage/service/disk_pool.py",
                "        except Exception as error:\n            if not isinstance(error, StorageError):\n",
                "        except Exception as error:\n            return results\n"
                "            if not isinstance(error, StorageError):\n",
            ),
        ),
        expected=("out_of_service", "replicas_settle", *_LOST),
        how="A sync of the journal fails, the appends in it are acknowledged, and the node ends.",
        profile="journal",
        found_at=9,
    ),
)
