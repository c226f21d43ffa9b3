"""A Spark program that writes to a log while things are killed: `python program.py ARGUMENTS` (JSON, see
`Arguments`).

A process of its own, because drivers are killed too. The faults are in a step of the query before the sink:
when it has passed on enough rows, and the log has got some of them, it ends its process, or the driver, or
hangs. Each happens once.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from waltz_spark.spark_home import prepare

if TYPE_CHECKING:
    import pyarrow as pa

STREAM, BATCH = "stream", "batch"
DIE, KILL_DRIVER, STAND_STILL = "die", "kill driver", "stand still"
TWO_HOSTS = "two hosts"
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True)
class Arguments:
    """`source` from the transaction `first` on is copied to `target` (partitions of the log);
    `faults`: task number to what happens there, and after how many rows. `directory` holds the
    checkpoint, and what happened already. `master` is Spark's, or `TWO_HOSTS`."""

    keys: dict[str, str]
    kind: str
    source: int
    first: int
    target: int
    directory: str
    master: str
    faults: dict[str, tuple[str, int]]
    conf: dict[str, str]
    tasks: int = 2

    def command(self) -> list[str]:
        """How to start it."""
        return [sys.executable, __file__, json.dumps(asdict(self))]


def run(arguments: Arguments) -> None:
    """Copy everything, once."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(prepare(Path(arguments.directory) / "spark"))
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
        "spark.sql.warehouse.dir": f"{arguments.directory}/warehouse",
        "spark.ui.showConsoleProgress": "false",
        **arguments.conf,
    }
    started = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    SparkContext._ensure_initialized(conf=started)
    master = two_hosts(arguments.directory) if arguments.master == TWO_HOSTS else arguments.master
    spark = SparkSession.builder.config(conf=started).master(master).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # Functions of this program go to the workers by value; the package is where they can import it.
    reader = spark.readStream if arguments.kind == STREAM else spark.read
    options = {
        **arguments.keys,
        "partitions": str(arguments.source),
        "startingTransactions": json.dumps({str(arguments.source): arguments.first}),
        "minPartitions": str(arguments.tasks),
    }
    if arguments.kind == STREAM:
        options["maxTransactionsPerTrigger"] = "500"
    log = reader.format("waltz").options(**options).load()
    passed = log.select("header", "data").mapInArrow(step(arguments, os.getpid()), "header int, data binary")
    write(arguments, passed.select("data", "header", lit(arguments.target).alias("partition")))
    print("rows are written")
    spark.stop()


def two_hosts(directory: str) -> str:
    """A Spark cluster of two workers, in the Java process of this program; its address.

    Spark starts no copy of a task on the host where the task runs already, and the workers of
    `local-cluster` are all on one. These have an address each.
    """
    gateway: Any = SparkContext._gateway
    java, deploy = gateway.jvm, gateway.jvm.org.apache.spark.deploy
    conf = java.org.apache.spark.SparkConf()
    started = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)
    addresses = gateway.new_array(java.java.lang.String, 1)
    addresses[0] = f"spark://127.0.0.1:{started._1().address().port()}"
    for number in (1, 2):
        folder = f"{directory}/worker-{number}"
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            *(f"127.0.0.{number}", 0, 0, 1, 512, addresses, folder),
            *(java.scala.Option.apply(number), conf, java.scala.Option.empty()),
        )
    return str(addresses[0])


def write(arguments: Arguments, frame: DataFrame) -> None:
    options = arguments.keys
    if arguments.kind == BATCH:
        frame.write.format("waltz").options(**options).mode("append").save()
        return
    query = (
        frame.writeStream.format("waltz")
        .options(**options)
        .option("checkpointLocation", f"{arguments.directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def step(arguments: Arguments, driver: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The step before the sink."""
    directory, keys, target = arguments.directory, arguments.keys, arguments.target
    faults, kinds = arguments.faults, (DIE, KILL_DRIVER, STAND_STILL)

    def once(name: str) -> bool:
        try:
            os.close(os.open(os.path.join(directory, name.replace(" ", "-")), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def wait_for_rows() -> None:
        """Until the log has got rows of this run."""
        from waltz_client.blocking import BlockingWaltzClient

        with BlockingWaltzClient.connect(keys) as client:
            before = int(Path(directory, "mark").read_text())
            while client.high_water_mark(target) < before + 30:
                time.sleep(0.05)  # no event announces it

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import psutil
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else -1
        kind, count = faults.get(str(task), (None, 0))
        seen = 0
        for batch in batches:
            yield batch
            seen += batch.num_rows
            if kind is None or seen < count or not once(f"{task} {kind}"):
                continue
            wait_for_rows()
            if kind == kinds[0]:
                os._exit(7)
            if kind == kinds[1]:
                for process in (psutil.Process(driver), *psutil.Process(driver).children(recursive=True)):
                    if process.pid != os.getpid():
                        process.kill()
                os._exit(9)
            while kind == kinds[2]:
                time.sleep(0.2)  # until Spark gives up on this copy

    return pass_on


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    given["faults"] = {task: tuple(fault) for task, fault in given["faults"].items()}
    Path(given["directory"]).mkdir(exist_ok=True)
    run(Arguments(**given))
