"""All bugs planted for the unit tests, in the order of the code they are in."""

from __future__ import annotations

from collections.abc import Mapping

from tests.sim.mutants.mutant import Mutant
from tests.unit_mutants.planted.in_admin import ADMIN_BUGS
from tests.unit_mutants.planted.in_append_answers import ANSWER_BUGS
from tests.unit_mutants.planted.in_append_queue import APPEND_BUGS
from tests.unit_mutants.planted.in_blocks import BLOCK_BUGS
from tests.unit_mutants.planted.in_callbacks import CALLBACK_BUGS
from tests.unit_mutants.planted.in_certificates import CERTIFICATE_BUGS
from tests.unit_mutants.planted.in_client import CLIENT_BUGS
from tests.unit_mutants.planted.in_client_calls import CLIENT_CALL_BUGS
from tests.unit_mutants.planted.in_client_links import CLIENT_LINK_BUGS
from tests.unit_mutants.planted.in_cluster import CLUSTER_BUGS
from tests.unit_mutants.planted.in_comparisons import COMPARISON_BUGS
from tests.unit_mutants.planted.in_compressed_blocks import COMPRESSED_BLOCK_BUGS
from tests.unit_mutants.planted.in_directory import DIRECTORY_BUGS
from tests.unit_mutants.planted.in_faults import FAULT_BUGS
from tests.unit_mutants.planted.in_histories import HISTORIES_BUGS
from tests.unit_mutants.planted.in_idle_check import IDLE_CHECK_BUGS
from tests.unit_mutants.planted.in_journal import JOURNAL_BUGS
from tests.unit_mutants.planted.in_journal_place import JOURNAL_PLACE_BUGS
from tests.unit_mutants.planted.in_lost_files import LOST_FILES_BUGS
from tests.unit_mutants.planted.in_nodes import NODE_BUGS
from tests.unit_mutants.planted.in_open_files import OPEN_FILE_BUGS
from tests.unit_mutants.planted.in_operator import OPERATOR_BUGS
from tests.unit_mutants.planted.in_operator_passes import OPERATOR_PASS_BUGS
from tests.unit_mutants.planted.in_own_locks import OWN_LOCK_BUGS
from tests.unit_mutants.planted.in_peers import PEER_BUGS
from tests.unit_mutants.planted.in_postponed import POSTPONED_BUGS
from tests.unit_mutants.planted.in_producers import PRODUCER_BUGS
from tests.unit_mutants.planted.in_producers_over_servers import PRODUCER_OVER_SERVERS_BUGS
from tests.unit_mutants.planted.in_refused import REFUSED_BUGS
from tests.unit_mutants.planted.in_restore_reset import RESTORE_RESET_BUGS
from tests.unit_mutants.planted.in_restored import RESTORED_BUGS
from tests.unit_mutants.planted.in_server import SERVER_BUGS
from tests.unit_mutants.planted.in_shared_sync import SHARED_SYNC_BUGS
from tests.unit_mutants.planted.in_spark import SPARK_BUGS
from tests.unit_mutants.planted.in_storage import STORAGE_BUGS
from tests.unit_mutants.planted.in_store import STORE_BUGS
from tests.unit_mutants.planted.in_stored_records import STORED_RECORD_BUGS
from tests.unit_mutants.planted.in_take_over import TAKE_OVER_BUGS
from tests.unit_mutants.planted.in_tools import TOOLS_BUGS
from tests.unit_mutants.planted.in_trees import TREE_BUGS
from tests.unit_mutants.planted.in_unforeseen_errors import UNFORESEEN_ERROR_BUGS
from tests.unit_mutants.planted.in_witness import WITNESS_BUGS
from tests.unit_mutants.planted.in_write_behind import WRITE_BEHIND_BUGS

ALL_BUGS = (
    *SHARED_SYNC_BUGS,
    *LOST_FILES_BUGS,
    *UNFORESEEN_ERROR_BUGS,
    *TAKE_OVER_BUGS,
    *STORAGE_BUGS,
    *STORED_RECORD_BUGS,
    *WITNESS_BUGS,
    *JOURNAL_BUGS,
    *JOURNAL_PLACE_BUGS,
    *OPEN_FILE_BUGS,
    *RESTORE_RESET_BUGS,
    *WRITE_BEHIND_BUGS,
    *STORE_BUGS,
    *COMPARISON_BUGS,
    *IDLE_CHECK_BUGS,
    *POSTPONED_BUGS,
    *SERVER_BUGS,
    *APPEND_BUGS,
    *CALLBACK_BUGS,
    *CLIENT_BUGS,
    *CLIENT_CALL_BUGS,
    *CLIENT_LINK_BUGS,
    *OWN_LOCK_BUGS,
    *ANSWER_BUGS,
    *BLOCK_BUGS,
    *COMPRESSED_BLOCK_BUGS,
    *CLUSTER_BUGS,
    *PRODUCER_BUGS,
    *PRODUCER_OVER_SERVERS_BUGS,
    *PEER_BUGS,
    *DIRECTORY_BUGS,
    *ADMIN_BUGS,
    *REFUSED_BUGS,
    *FAULT_BUGS,
    *NODE_BUGS,
    *RESTORED_BUGS,
    *HISTORIES_BUGS,
    *TREE_BUGS,
    *TOOLS_BUGS,
    *SPARK_BUGS,
    *CERTIFICATE_BUGS,
    *OPERATOR_PASS_BUGS,
    *OPERATOR_BUGS,
)
PLANTED: Mapping[str, Mutant] = {bug.name: bug for bug in ALL_BUGS}
