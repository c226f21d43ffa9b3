"""The dashboard of Spark queries on the log: what Spark's own Prometheus pages have.

Spark puts the namespace of its metrics and the name of the query into the *name* of a streaming metric
(`metrics_NAMESPACE_driver_spark_streaming_QUERY_latency_Value`), so the expressions match names and make a
label `query` of them. Transactions behind the end of the log are in no page of Spark: `LagListener` has them.
"""

from __future__ import annotations

from tests.repo.dashboards.model import RATE, Dashboard, Panel, Query, Row, Variable

_HERE = 'namespace=~"$namespace"'


def _streaming(metric: str) -> str:
    name = f"metrics_.+_driver_spark_streaming_(.+)_{metric}_Value"
    return f'label_replace({{__name__=~"{name}", {_HERE}}}, "query", "$1", "__name__", "{name}")'


def _executors(metric: str) -> str:
    return f"metrics_executor_{metric}{{{_HERE}}}"


def _per_second(metric: str) -> str:
    return f"sum by (application_name) (rate({_executors(metric)}[{RATE}]))"


_APPLICATION = "{{application_name}}"

SPARK_DASHBOARD = Dashboard(
    "spark",
    "Waltz: Spark",
    "Streaming queries and their executors, as Spark's own Prometheus pages show them (pod-monitor.yaml).",
    (
        Variable(
            "namespace",
            "Namespace",
            "label_values(metrics_executor_totalTasks_total, namespace)",
            several=True,
        ),
    ),
    (
        Row(
            "Does it keep up?",
            (
                Panel(
                    "Failed tasks",
                    "In the last hour, by application; a task is run again, and a stream ends when it keeps failing.",
                    (
                        Query(
                            f"sum by (application_name) (increase({_executors('failedTasks_total')}[1h]))",
                            _APPLICATION,
                        ),
                    ),
                    kind="stat",
                    red=1,
                    height=4,
                ),
                Panel(
                    "Length of a trigger",
                    "Of the last one; above the trigger's interval the query falls behind.",
                    (Query(_streaming("latency"), "{{query}}"),),
                    unit="ms",
                    kind="stat",
                    height=4,
                ),
                Panel(
                    "Read ÷ arrived",
                    "Rows that can be processed per row that arrives; below 1 the query falls behind.",
                    (
                        Query(
                            f"sum by (query) ({_streaming('processingRate_total')})"
                            f" / (sum by (query) ({_streaming('inputRate_total')}) > 0)",
                            "{{query}}",
                        ),
                    ),
                    kind="stat",
                    height=4,
                    sparse=True,
                ),
            ),
        ),
        Row(
            "Rates and time",
            (
                Panel(
                    "Rows that arrive",
                    "Per second of wall-clock time, as the progress of the query has it.",
                    (Query(_streaming("inputRate_total"), "{{query}}"),),
                    unit="rowsps",
                ),
                Panel(
                    "Rows that are processed",
                    "Per second of processing.",
                    (Query(_streaming("processingRate_total"), "{{query}}"),),
                    unit="rowsps",
                ),
                Panel(
                    "Length of triggers",
                    "From the beginning of a trigger to its end.",
                    (Query(_streaming("latency"), "{{query}}"),),
                    unit="ms",
                ),
                Panel(
                    "Rows of state",
                    "What aggregations and joins keep; it should not grow forever.",
                    (Query(_streaming("states_rowsTotal"), "{{query}}"),),
                ),
                Panel(
                    "Memory of the state",
                    "In the executors.",
                    (Query(_streaming("states_usedBytes"), "{{query}}"),),
                    unit="bytes",
                ),
                Panel(
                    "Tasks completed",
                    "Per second, by application.",
                    (Query(_per_second("completedTasks_total"), _APPLICATION),),
                    unit="ops",
                ),
            ),
        ),
        Row(
            "How full it is",
            (
                Panel(
                    "Tasks that run, of those that can",
                    "Cores in use, by application.",
                    (
                        Query(
                            f"sum by (application_name) ({_executors('activeTasks')})"
                            f" / sum by (application_name) ({_executors('maxTasks')})",
                            _APPLICATION,
                        ),
                    ),
                    unit="percentunit",
                ),
                Panel(
                    "Garbage collection",
                    "Share of the task time.",
                    (
                        Query(
                            f"{_per_second('totalGCTime_seconds_total')} / {_per_second('totalDuration_seconds_total')}",
                            _APPLICATION,
                        ),
                    ),
                    unit="percentunit",
                    sparse=True,
                ),
                Panel(
                    "Heap of the executors",
                    "The highest that was seen.",
                    (Query(_executors("JVMHeapMemory_bytes"), "{{application_name}} {{executor_id}}"),),
                    unit="bytes",
                ),
            ),
        ),
    ),
)
