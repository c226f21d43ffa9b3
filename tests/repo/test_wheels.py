"""Wheels hold only what their users run: every module of a member is imported by another one, or is listed
here with who starts from it."""

from tests.repo.import_graph import graph, modules

STARTED = {
    "waltz_operator.__main__": "the command waltz-operator",
    "waltz_server.__main__": "the command waltz-server",
    "waltz_storage.__main__": "the command waltz-storage",
    "waltz_tools.__main__": "the command waltz",
    "waltz_client.opentelemetry": "applications with OpenTelemetry",
    "waltz_client.prometheus": "applications with Prometheus",
    "waltz_operator.api.crd": "tests of the operator, which write crds/ from the models",
    "waltz_spark.job": "jobs of Spark",
    "waltz_spark.spark_home": "jobs of Spark",
    "pytest_waltz": "pytest, by the entry point of waltz-client",
    "pyspark_waltz": "Spark, which looks for it by its name",
}
NEVER_SHIPPED = "waltz_testkit"


def test_every_shipped_module_is_used() -> None:
    imported = set().union(*graph().values())
    idle = {
        name
        for name, module in modules().items()
        if name not in imported
        and module.path.name != "__init__.py"
        and name.partition(".")[0] != NEVER_SHIPPED
    }
    assert idle == STARTED.keys()
