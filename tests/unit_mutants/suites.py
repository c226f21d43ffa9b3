"""Which tests belong to which source file: the nearest ones first, then all of its member.

Written down, not derived: what shows a module's purpose is the name of its test file, and a wrong line costs
time only.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from tests.sim.mutants.loader import ROOT

_SERVER = "services/server/tests/server_tests"
_STORE = f"{_SERVER}/store"
_STORAGE = "services/storage/tests/storage_tests"
_JOURNAL = (
    f"{_STORAGE}/test_write_behind.py",
    f"{_STORAGE}/test_journal.py",
    f"{_STORAGE}/test_journal_unmade.py",
    f"{_STORAGE}/test_journaled_directory.py",
    f"{_STORAGE}/test_journal_lost_files.py",
    f"{_STORAGE}/test_journal_volume.py",
    f"{_STORAGE}/test_journal_settling.py",
    f"{_STORAGE}/test_node_journal.py",
    f"{_STORAGE}/test_journal_crashes.py",
)
_CLIENT = "client/tests/client_tests"
_CLUSTER = "libs/cluster/tests/cluster_tests"
_ADMIN = "libs/admin/tests/admin_tests"
_SAME_NODE = (f"{_ADMIN}/test_same_node.py", f"{_ADMIN}/test_replace.py")
_TOOLS = "tools/tests/tools_tests"
_SPARK = "spark-on-k8s/tests/spark_tests"
_OPERATOR = "operator/tests/operator_tests"

NEAREST: dict[str, tuple[str, ...]] = {
    "waltz_server/directory.py": (f"{_SERVER}/test_directory.py",),
    "waltz_client/_internal/directory/sources.py": (
        f"{_CLIENT}/test_directory_sources.py",
        f"{_CLIENT}/test_directory.py",
    ),
    "waltz_client/_internal/directory/discovery.py": (f"{_CLIENT}/test_directory.py",),
    "waltz_client/_internal/directory/session.py": (f"{_CLIENT}/test_directory.py",),
    "waltz_protocol/aio/names.py": ("libs/protocol/tests/protocol_tests/test_names.py",),
    "waltz_protocol/directory.py": ("libs/protocol/tests/protocol_tests/test_directory.py",),
    "waltz_server/store/committed_mark.py": (f"{_SERVER}/test_committed_mark.py",),
    "waltz_server/store/session_confirmation.py": (f"{_STORE}/test_session_confirmation.py",),
    "waltz_server/store/frames.py": (
        f"{_STORE}/test_session_frames.py",
        f"{_STORE}/test_what_a_session_keeps.py",
    ),
    "waltz_server/store/list_request_size.py": (
        f"{_STORE}/test_router_and_directory.py",
        f"{_STORE}/test_frame_sizes.py",
    ),
    "waltz_server/store/metadata_keeper.py": (f"{_STORE}/test_metadata_keeper.py",),
    "waltz_server/store/opening.py": (f"{_STORE}/test_older_copy.py",),
    "waltz_server/store/quorum.py": (
        f"{_STORE}/test_recovery_examples.py",
        f"{_STORE}/test_recovery_enumerated.py",
    ),
    "waltz_server/store/recovery.py": (
        f"{_STORE}/test_recovery_corners.py",
        f"{_STORE}/test_older_copy_histories.py",
        f"{_STORE}/test_recovery_examples.py",
    ),
    "waltz_server/store/recovery_replica.py": (
        f"{_STORE}/test_recovery_corners.py",
        f"{_STORE}/test_recovery_examples.py",
    ),
    "waltz_server/store/replica_connection.py": (f"{_STORE}/test_router_and_directory.py",),
    "waltz_server/store/replica_recovery.py": (
        f"{_STORE}/test_replica_phases.py",
        f"{_STORE}/test_headers_with_the_fence.py",
        f"{_STORE}/test_recovery_stalls.py",
        f"{_STORE}/test_what_a_session_keeps.py",
        f"{_STORE}/test_session_corners.py",
    ),
    "waltz_server/store/replica_session.py": (
        f"{_STORE}/test_record_reads.py",
        f"{_STORE}/test_session_frames.py",
        f"{_STORE}/test_what_a_session_keeps.py",
    ),
    "waltz_server/store/replica_states.py": (
        f"{_STORE}/test_recovery_examples.py",
        f"{_STORE}/test_recovery_corners.py",
    ),
    "waltz_server/store/record_reads.py": (
        f"{_STORE}/test_record_reads.py",
        f"{_STORE}/test_what_a_session_keeps.py",
        f"{_STORE}/test_router_and_directory.py",
    ),
    "waltz_server/store/record_run.py": (f"{_STORE}/test_record_reads.py",),
    "waltz_server/store/router.py": (
        f"{_STORE}/test_record_reads.py",
        f"{_STORE}/test_what_a_session_keeps.py",
        f"{_STORE}/test_router_and_directory.py",
    ),
    "waltz_server/store/session.py": (
        f"{_STORE}/test_session_frames.py",
        f"{_STORE}/test_session_corners.py",
    ),
    "waltz_server/store/session_run.py": (
        f"{_STORE}/test_session_corners.py",
        f"{_STORE}/test_partition_store_safety.py",
        f"{_STORE}/test_recovery_stalls.py",
    ),
    "waltz_server/store/quorum_store.py": (
        f"{_STORE}/test_what_a_session_keeps.py",
        f"{_STORE}/test_session_corners.py",
        f"{_STORE}/test_partition_store.py",
    ),
    "waltz_server/store/voting.py": (f"{_STORE}/test_voting.py",),
    "waltz_server/partition/append_outcomes.py": (f"{_SERVER}/test_append_answers.py",),
    "waltz_server/partition/append_answers.py": (f"{_SERVER}/test_append_answers.py",),
    "waltz_server/partition/queued_append.py": (f"{_SERVER}/test_append_lines.py",),
    "waltz_server/partition/lock_lines.py": (
        f"{_SERVER}/test_append_lines.py",
        f"{_SERVER}/test_lock_lines.py",
    ),
    "waltz_server/partition/lock_turns.py": (f"{_SERVER}/test_append_lines.py",),
    "waltz_server/partition/repeats.py": (f"{_SERVER}/test_append_answers.py",),
    "waltz_server/partition/append.py": (
        f"{_SERVER}/test_hand_over.py",
        f"{_SERVER}/test_append.py",
        f"{_SERVER}/test_append_answers.py",
        f"{_SERVER}/test_partition_corners.py",
        f"{_SERVER}/test_pending_answers.py",
    ),
    "waltz_server/partition/data_reads.py": (
        f"{_SERVER}/test_data_reads.py",
        f"{_SERVER}/test_read_bounds.py",
    ),
    "waltz_server/partition/block_feeds.py": (
        f"{_SERVER}/test_block_feeds.py",
        f"{_SERVER}/test_block_reads.py",
        f"{_SERVER}/test_compressed_feeds.py",
    ),
    "waltz_server/partition/compressed_blocks.py": (f"{_SERVER}/test_compressed_feeds.py",),
    "waltz_server/partition/awaited_reads.py": (f"{_SERVER}/test_feed.py", f"{_SERVER}/test_block_feeds.py"),
    "waltz_server/partition/deliveries.py": (
        f"{_SERVER}/test_compressed_feeds.py",
        f"{_SERVER}/test_partition_corners.py",
        f"{_SERVER}/test_pending_answers.py",
        f"{_SERVER}/test_append.py",
    ),
    "waltz_server/partition/feed.py": (f"{_SERVER}/test_feed.py",),
    "waltz_server/partition/feed_cache.py": (f"{_SERVER}/test_caches.py",),
    "waltz_server/partition/future_requests.py": (f"{_SERVER}/test_waiting_requests.py",),
    "waltz_server/partition/hand_over.py": (f"{_SERVER}/test_hand_over.py",),
    "waltz_server/partition/settlement.py": (f"{_SERVER}/test_hand_over.py",),
    "waltz_server/surrenders.py": (f"{_SERVER}/test_hand_over.py",),
    "waltz_server/peers/old_owners.py": (f"{_SERVER}/peers/test_old_owners.py",),
    "waltz_server/peers/judgement.py": (f"{_SERVER}/peers/test_judgement.py",),
    "waltz_server/peers/detector.py": (f"{_SERVER}/peers/test_detector.py",),
    "waltz_server/connection.py": (
        f"{_SERVER}/test_connection.py",
        f"{_SERVER}/test_append_answers.py",
        f"{_SERVER}/test_last_words.py",
    ),
    "waltz_server/partition/pending_answers.py": (
        f"{_SERVER}/test_pending_answers.py",
        f"{_SERVER}/test_waiting_requests.py",
    ),
    "waltz_server/partition/mounts.py": (f"{_SERVER}/test_mounts.py", f"{_SERVER}/test_pending_answers.py"),
    "waltz_server/partition/owned_partition.py": (
        f"{_SERVER}/test_partition_corners.py",
        f"{_SERVER}/test_pending_answers.py",
        f"{_SERVER}/test_append.py",
        f"{_SERVER}/test_last_words.py",
    ),
    "waltz_server/partition/reads.py": (f"{_SERVER}/test_data_reads.py", f"{_SERVER}/test_read_bounds.py"),
    "waltz_server/partition/transaction_cache.py": (f"{_SERVER}/test_caches.py",),
    "waltz_storage/engine/control_file.py": (
        f"{_STORAGE}/test_restore_reset.py",
        f"{_STORAGE}/test_two_copies.py",
        f"{_STORAGE}/test_damaged_entry.py",
        f"{_STORAGE}/test_disk_edges.py",
        f"{_STORAGE}/test_safety_c.py",
    ),
    "waltz_storage/engine/fence_repair.py": (
        f"{_STORAGE}/test_lower_fence.py",
        f"{_TOOLS}/test_storage_repairs.py",
    ),
    "waltz_storage/engine/files.py": (f"{_STORAGE}/test_file_modes.py", f"{_TOOLS}/test_storage_repairs.py"),
    "waltz_storage/engine/restore_reset.py": (
        f"{_STORAGE}/test_restore_reset.py",
        f"{_STORAGE}/test_weaknesses.py",
        f"{_TOOLS}/test_storage_repairs.py",
    ),
    "waltz_storage/engine/journal/directory.py": (f"{_STORAGE}/test_restore_reset.py", *_JOURNAL),
    "waltz_storage/engine/journal/filesystem.py": _JOURNAL,
    "waltz_storage/engine/journal/handle.py": _JOURNAL,
    "waltz_storage/engine/journal/layout.py": _JOURNAL,
    "waltz_storage/engine/journal/log.py": _JOURNAL,
    "waltz_storage/engine/journal/replay.py": _JOURNAL,
    "waltz_storage/engine/journal/shared_file.py": _JOURNAL,
    "waltz_storage/engine/partition.py": (
        f"{_STORAGE}/test_node_report.py",
        f"{_STORAGE}/test_journal_unmade.py",
        f"{_STORAGE}/test_journaled_directory.py",
        f"{_STORAGE}/test_write_behind.py",
        f"{_STORAGE}/test_safety_c.py",
        f"{_STORAGE}/test_node_stored.py",
        f"{_STORAGE}/test_disk_edges.py",
        f"{_STORAGE}/test_safety_c5_crashes.py",
        f"{_STORAGE}/test_weaknesses.py",
    ),
    "waltz_storage/engine/partition_info.py": (
        f"{_STORAGE}/test_formats.py",
        f"{_STORAGE}/test_two_copies.py",
    ),
    "waltz_storage/engine/recovery.py": (
        f"{_STORAGE}/test_safety_c.py",
        f"{_STORAGE}/test_damaged_index.py",
        f"{_STORAGE}/test_disk_edges.py",
    ),
    "waltz_storage/engine/free_space.py": (
        f"{_STORAGE}/test_free_space.py",
        f"{_STORAGE}/test_journal_unmade.py",
        f"{_STORAGE}/test_journaled_directory.py",
        f"{_STORAGE}/test_journal_lost_files.py",
        f"{_STORAGE}/test_journal_settling.py",
    ),
    "waltz_storage/engine/scan.py": (
        f"{_STORAGE}/test_safety_c.py",
        f"{_STORAGE}/test_log_corners.py",
        f"{_STORAGE}/test_hostile_files.py",
    ),
    "waltz_storage/engine/segment.py": (
        f"{_STORAGE}/test_write_behind.py",
        f"{_STORAGE}/test_safety_c.py",
        f"{_STORAGE}/test_disk_edges.py",
        f"{_STORAGE}/test_safety_c5_crashes.py",
    ),
    "waltz_storage/engine/shared_sync.py": (f"{_STORAGE}/test_shared_sync.py",),
    "waltz_storage/engine/sidecar.py": (f"{_STORAGE}/test_two_copies.py", f"{_STORAGE}/test_safety_c.py"),
    "waltz_storage/engine/storage_manager.py": (
        f"{_STORAGE}/test_node_report.py",
        f"{_STORAGE}/test_journaled_directory.py",
        f"{_STORAGE}/test_journal_lost_files.py",
        f"{_STORAGE}/test_journal_settling.py",
        f"{_STORAGE}/test_log_corners.py",
        f"{_STORAGE}/test_disk_edges.py",
        f"{_STORAGE}/test_weaknesses.py",
    ),
    "waltz_storage/engine/witness.py": (
        f"{_STORAGE}/test_safety_c6_lost_files.py",
        f"{_STORAGE}/test_lower_fence.py",
        f"{_STORAGE}/test_safety_c6_crashes.py",
    ),
    "waltz_storage/service/disk_pool.py": (
        f"{_STORAGE}/test_write_behind.py",
        f"{_STORAGE}/test_node_stored.py",
        f"{_STORAGE}/test_node.py",
        f"{_STORAGE}/test_node_fence.py",
        f"{_STORAGE}/test_node_journal.py",
    ),
    "waltz_storage/service/fence.py": (f"{_STORAGE}/test_fence.py",),
    "waltz_storage/service/job_order.py": (f"{_STORAGE}/test_job_order.py",),
    "waltz_storage/service/jobs.py": (
        f"{_STORAGE}/test_node_fence.py",
        f"{_STORAGE}/test_node_stored.py",
        f"{_STORAGE}/test_node.py",
    ),
    "waltz_client/_internal/appender.py": (
        f"{_CLIENT}/test_append_many_input.py",
        f"{_CLIENT}/test_outcomes.py",
        f"{_CLIENT}/test_ends.py",
    ),
    "waltz_client/_internal/partitions.py": (f"{_CLIENT}/test_choosing.py",),
    "waltz_client/_internal/append/request.py": (
        f"{_CLIENT}/test_bad_input.py",
        f"{_CLIENT}/test_small_parts.py",
    ),
    "waltz_client/_internal/stream/session.py": (f"{_CLIENT}/test_append_answers.py",),
    "waltz_client/_internal/append/own_locks.py": (
        f"{_CLIENT}/test_own_locks_lines.py",
        f"{_CLIENT}/test_own_locks.py",
    ),
    "waltz_client/_internal/contexts.py": (
        f"{_CLIENT}/test_own_locks.py",
        f"{_CLIENT}/test_transact.py",
        f"{_CLIENT}/test_contract.py",
    ),
    "waltz_client/_internal/connections.py": (f"{_CLIENT}/test_tls.py",),
    "waltz_client/_internal/core.py": (
        f"{_CLIENT}/test_raised_cancellation.py",
        f"{_CLIENT}/test_closing.py",
    ),
    "waltz_client/_internal/observers.py": (
        f"{_CLIENT}/test_raised_cancellation.py",
        f"{_CLIENT}/test_observer.py",
    ),
    "waltz_client/_internal/append/window.py": (
        f"{_CLIENT}/test_raised_cancellation.py",
        f"{_CLIENT}/test_append_answers.py",
        f"{_CLIENT}/test_stream_partition.py",
        f"{_CLIENT}/test_outcomes.py",
    ),
    "waltz_protocol/frames/blocks.py": ("libs/protocol/tests/protocol_tests/test_blocks.py",),
    "waltz_protocol/frames/compressed_blocks.py": (
        "libs/protocol/tests/protocol_tests/test_compressed_blocks.py",
    ),
    "waltz_client/feed.py": (f"{_CLIENT}/test_blocks.py",),
    "waltz_client/ranges.py": (f"{_CLIENT}/test_blocks.py", f"{_CLIENT}/test_ranges.py"),
    "waltz_client/_internal/rpc/session.py": (
        f"{_CLIENT}/test_compressed_blocks.py",
        f"{_CLIENT}/test_rpc.py",
    ),
    "waltz_client/_internal/rpc/block_feed.py": (
        f"{_CLIENT}/test_from_now_on.py",
        f"{_CLIENT}/test_blocks.py",
    ),
    "waltz_client/_internal/range_pieces.py": (f"{_CLIENT}/test_blocks.py",),
    "waltz_spark/blocks.py": (f"{_SPARK}/test_blocks.py",),
    "waltz_spark/stream.py": (f"{_SPARK}/test_stream_reader.py",),
    "waltz_spark/sink/attempt.py": (f"{_SPARK}/sink/test_injected_failures.py",),
    "waltz_spark/sink/batch_starts.py": (f"{_SPARK}/sink/test_writers.py", f"{_SPARK}/sink/test_parts.py"),
    "waltz_spark/sink/rows.py": (f"{_SPARK}/sink/test_parts.py",),
    "waltz_spark/sink/writers.py": (f"{_SPARK}/sink/test_writers.py",),
    "waltz_spark/sink/task_writer.py": (
        f"{_SPARK}/sink/test_silent_log.py",
        f"{_SPARK}/sink/test_injected_failures.py",
    ),
    "waltz_client/_internal/applier.py": (
        f"{_CLIENT}/test_applier.py",
        f"{_CLIENT}/test_stop_applying.py",
        f"{_CLIENT}/test_contract.py",
    ),
    "waltz_client/_internal/stream/feed_cursor.py": (
        f"{_CLIENT}/test_raised_cancellation.py",
        f"{_CLIENT}/test_flow_control.py",
    ),
    "waltz_client/_internal/stream/readers.py": (
        f"{_CLIENT}/test_stream_partition.py",
        f"{_CLIENT}/test_flow_control.py",
    ),
    "waltz_client/_internal/req_ids.py": (f"{_CLIENT}/test_small_parts.py",),
    "waltz_client/_internal/stream/partition.py": (
        f"{_CLIENT}/test_from_now_on.py",
        f"{_CLIENT}/test_raised_cancellation.py",
        f"{_CLIENT}/test_append_answers.py",
        f"{_CLIENT}/test_stream_partition.py",
        f"{_CLIENT}/test_mount.py",
    ),
    "waltz_client/_internal/stream/mount.py": (
        f"{_CLIENT}/test_stream_partition.py",
        f"{_CLIENT}/test_mount.py",
    ),
    "waltz_client/_internal/stream/mount_state.py": (
        f"{_CLIENT}/test_mount_state.py",
        f"{_CLIENT}/test_stream_partition.py",
    ),
    "waltz_client/_internal/stream/silence.py": (
        f"{_CLIENT}/test_stream_partition.py",
        f"{_CLIENT}/test_mount.py",
    ),
    "waltz_client/_internal/append/transaction_monitor.py": (f"{_CLIENT}/test_transaction_monitor.py",),
    "waltz_admin/report_json.py": (f"{_ADMIN}/test_reports.py",),
    "waltz_admin/node_state.py": (f"{_ADMIN}/test_reports.py", f"{_ADMIN}/test_processes.py"),
    "waltz_admin/observed_node.py": (f"{_ADMIN}/test_observer.py",),
    "waltz_admin/watched_view.py": (f"{_ADMIN}/test_observer.py",),
    "waltz_admin/compare.py": (f"{_ADMIN}/test_compare.py",),
    "waltz_admin/same_node.py": _SAME_NODE,
    "waltz_admin/nodes.py": _SAME_NODE,
    "waltz_cluster/eviction.py": (f"{_CLUSTER}/test_eviction.py",),
    "waltz_cluster/joined_writes.py": (f"{_CLUSTER}/test_joined_writes.py",),
    "waltz_cluster/moving.py": (f"{_CLUSTER}/test_moving.py",),
    "waltz_cluster/manager.py": (f"{_CLUSTER}/test_eviction.py", f"{_CLUSTER}/test_session_loss.py"),
    "waltz_cluster/registration.py": (f"{_CLUSTER}/test_eviction.py",),
    "waltz_cluster/older_copy.py": (f"{_CLUSTER}/test_older_copy.py", f"{_STORE}/test_older_copy.py"),
    "waltz_cluster/lease.py": (f"{_CLUSTER}/test_lease.py", f"{_CLUSTER}/test_session_loss.py"),
    "waltz_cluster/zk_connection.py": (f"{_CLUSTER}/test_zk_client.py",),
    "waltz_cluster/quorum.py": (f"{_ADMIN}/test_safety_corners.py",),
    "waltz_cluster/replica_rules.py": (f"{_CLUSTER}/test_replica_rules.py",),
    "waltz_admin/assignments.py": (f"{_ADMIN}/test_safety.py", f"{_ADMIN}/test_safety_corners.py"),
    "waltz_admin/safety.py": (
        f"{_ADMIN}/test_safety.py",
        f"{_ADMIN}/test_safety_corners.py",
        f"{_ADMIN}/test_replace.py",
    ),
    "waltz_admin/restored_metadata.py": (
        f"{_ADMIN}/test_accept_restored.py",
        f"{_STORE}/test_way_out_enumerated.py",
        f"{_STORE}/test_older_copy_enumerated.py",
    ),
    "waltz_admin/accept_restored.py": (f"{_ADMIN}/test_accept_restored.py",),
    "waltz_admin/tree_copy.py": (f"{_ADMIN}/test_tree_copy.py", f"{_ADMIN}/test_nested_clusters.py"),
    "waltz_admin/tree_file.py": (f"{_ADMIN}/test_tree_copy.py", f"{_ADMIN}/test_nested_clusters.py"),
    "waltz_admin/rebuild_tree.py": (f"{_ADMIN}/test_tree_copy.py",),
    "waltz_admin/findings/rules.py": (f"{_ADMIN}/test_findings.py",),
    "waltz_admin/findings/explain.py": (f"{_ADMIN}/test_findings.py",),
    "waltz_tools/console/safety.py": (f"{_TOOLS}/test_console_safety.py",),
    "waltz_tools/console/settings.py": (f"{_TOOLS}/test_console_safety.py",),
    "waltz_tools/console/app.py": (f"{_TOOLS}/test_console_safety.py",),
    "waltz_tools/console/payload.py": (f"{_TOOLS}/test_console_payload.py",),
    "waltz_tools/console/msgpack.py": (f"{_TOOLS}/test_console_payload.py",),
    "waltz_tools/console/records.py": (
        f"{_TOOLS}/test_console_records.py",
        f"{_TOOLS}/test_console_pages.py",
    ),
    "waltz_tools/console/collector.py": (f"{_TOOLS}/test_console_pages.py",),
    "waltz_operator/plan/diff.py": (f"{_OPERATOR}/plan/test_diff.py",),
    "waltz_operator/run/read_kubernetes.py": (f"{_OPERATOR}/plan/test_copy_jobs.py",),
    "waltz_operator/run/overridden.py": (f"{_OPERATOR}/run/test_overridden.py",),
    "waltz_operator/plan/replica_changes.py": (
        f"{_OPERATOR}/plan/test_beginning.py",
        f"{_OPERATOR}/plan/test_ending_pods.py",
    ),
    "waltz_operator/plan/cluster.py": (f"{_OPERATOR}/plan/test_refused.py",),
    "waltz_operator/plan/teardown.py": (f"{_OPERATOR}/plan/test_teardown.py",),
    "waltz_operator/plan/safety_gates.py": (
        f"{_OPERATOR}/plan/test_deleted_claims.py",
        f"{_OPERATOR}/plan/test_ending_pods.py",
        f"{_OPERATOR}/plan/test_zookeeper_restarts.py",
    ),
    "waltz_operator/resources/claims.py": (f"{_OPERATOR}/resources/test_rendering.py",),
    "waltz_operator/resources/affinity.py": (f"{_OPERATOR}/resources/test_affinity.py",),
    "waltz_operator/model/ensemble.py": (
        f"{_OPERATOR}/plan/test_deleted_claims.py",
        f"{_OPERATOR}/plan/test_leftover_claims.py",
        f"{_OPERATOR}/plan/test_ensemble.py",
    ),
    "waltz_operator/model/facts.py": (f"{_OPERATOR}/plan/test_deleted_claims.py",),
    "waltz_operator/model/dying_volumes.py": (f"{_OPERATOR}/plan/test_deleted_claims.py",),
    "waltz_operator/plan/preconditions.py": (f"{_OPERATOR}/plan/test_teardown.py",),
    "waltz_operator/plan/kept_data.py": (f"{_OPERATOR}/plan/test_teardown.py",),
    "waltz_operator/run/observe.py": (f"{_OPERATOR}/run/test_whose_object.py",),
    "waltz_operator/plan/status/conditions.py": (f"{_OPERATOR}/plan/test_phase.py",),
    "waltz_operator/plan/status/progressing.py": (f"{_OPERATOR}/plan/test_teardown.py",),
    "waltz_operator/run/write_kubernetes.py": (
        f"{_OPERATOR}/run/test_disown.py",
        f"{_OPERATOR}/run/test_whose_object.py",
    ),
    "waltz_admin/nested.py": (f"{_ADMIN}/test_nested_clusters.py",),
    "waltz_admin/nested_roots.py": (f"{_ADMIN}/test_nested_clusters.py",),
    "waltz_admin/seeding.py": (f"{_ADMIN}/test_seeding.py", f"{_ADMIN}/test_nested_clusters.py"),
    "waltz_tools/cli/zk_tree.py": (f"{_TOOLS}/test_zk_tree_mistakes.py",),
    "waltz_admin/replace.py": (f"{_ADMIN}/test_replace.py",),
    "waltz_admin/storage_admin.py": (*_SAME_NODE, f"{_ADMIN}/test_processes.py"),
    "waltz_admin/forget.py": (f"{_ADMIN}/test_forget.py",),
    "waltz_admin/offline_copy.py": (f"{_ADMIN}/test_offline_copy.py",),
    "waltz_operator/api/config_check.py": (f"{_OPERATOR}/api/test_config_keys.py",),
    "waltz_operator/api/security.py": (f"{_OPERATOR}/api/test_topology.py",),
    "waltz_operator/api/validate.py": (f"{_OPERATOR}/api/test_validate.py",),
    "waltz_admin/authority.py": (f"{_ADMIN}/test_authority.py",),
    "waltz_operator/plan/certificates.py": (f"{_OPERATOR}/tls/test_clocks.py",),
    "waltz_operator/tls/rotation.py": (
        f"{_OPERATOR}/tls/test_clocks.py",
        f"{_OPERATOR}/tls/test_decisions.py",
        f"{_OPERATOR}/tls/test_wrong_specification.py",
    ),
    "waltz_operator/run/renewals.py": (f"{_OPERATOR}/tls/test_wrong_specification.py",),
    "waltz_operator/plan/status/stalled.py": (f"{_OPERATOR}/plan/test_refused_pods.py",),
    "waltz_operator/plan/status/cluster.py": (f"{_OPERATOR}/plan/test_node_names.py",),
    "waltz_operator/plan/zookeeper_export.py": (f"{_OPERATOR}/plan/test_zookeeper_export.py",),
    "waltz_operator/run/installations.py": (f"{_OPERATOR}/run/test_installations.py",),
    "waltz_operator/run/lease.py": (f"{_OPERATOR}/run/test_lease.py", f"{_OPERATOR}/run/test_lease_model.py"),
    "waltz_operator/run/names.py": (f"{_OPERATOR}/run/test_names.py",),
    "waltz_operator/model/versions.py": (f"{_OPERATOR}/plan/test_versions.py",),
    "waltz_operator/model/texts.py": (f"{_OPERATOR}/run/test_many_rejections.py",),
    "waltz_operator/run/rejections.py": (f"{_OPERATOR}/run/test_many_rejections.py",),
    "waltz_operator/run/resting_migrations.py": (f"{_OPERATOR}/run/test_many_migrations.py",),
    "waltz_admin/verify.py": (f"{_ADMIN}/test_safety_corners.py", f"{_ADMIN}/test_processes.py"),
}
"""What follows `src/` -> test files."""

IGNORED = (
    f"{_SERVER}/test_main.py",
    f"{_STORAGE}/test_process.py",
    f"{_CLIENT}/test_sql_applier.py",
    f"{_CLIENT}/test_sql_ended_transactions.py",
    f"{_CLIENT}/test_sql_with_clients.py",
)
"""They start processes, which do not have the bug, or try a database."""


def member_of(file: str) -> PurePosixPath:
    """The folder that holds `src` and `tests`."""
    parts = PurePosixPath(file).parts
    return PurePosixPath(*parts[: parts.index("src")])


def stages_of(file: str) -> list[list[str]]:
    """The nearest tests, then those of the member."""
    nearest = NEAREST.get(file.partition("/src/")[2], ())
    whole = [str(member_of(file) / "tests")]
    return [list(nearest), whole] if nearest else [whole]


def missing_files() -> list[str]:
    """What is named here and does not exist."""
    tests = {name for files in NEAREST.values() for name in files} | set(IGNORED)
    sources = [
        f"{member}/src/{name}" for name in NEAREST for member in _MEMBERS if (ROOT / member / "src").is_dir()
    ]
    known = {name for name in sources if (ROOT / name).is_file()}
    lost = [name for name in NEAREST if not any(path.endswith(f"/src/{name}") for path in known)]
    return sorted(lost + [name for name in tests if not (ROOT / name).is_file()])


_MEMBERS = (
    "services/server", "services/storage", "client", "libs/admin", "libs/cluster", "libs/protocol", "tools",
    "spark-on-k8s", "operator",
)  # fmt: skip
