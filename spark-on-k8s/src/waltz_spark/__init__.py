"""The Spark data source and sink of Waltz: `spark.read.format("waltz")` and its like.

PySpark is no dependency of this distribution but an extra, so that a platform's own stays as it is.
"""

import sys

from waltz_protocol.extras import with_extra

try:
    import numpy  # noqa: F401
    import pyarrow  # noqa: F401
    import pydantic  # noqa: F401
    import pyspark.sql.datasource  # Spark's own part for sources in Python, since 4.0  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name in ("numpy", "pyarrow", "pydantic"):
        raise ModuleNotFoundError(
            f"waltz_spark needs {missing.name}, and {sys.executable} has none: pip install {missing.name} for driver and "
            "executors (the archive for --py-files cannot bring it, because it is compiled)",
            name=missing.name,
        ) from None
    if missing.name not in ("pyspark", "pyspark.sql.datasource"):
        raise
    raise ModuleNotFoundError(
        f"waltz_spark needs PySpark 4.0 or newer, and {sys.executable} has none: use the Python of your Spark platform, or "
        + with_extra("waltz-spark", "pyspark"),
        name=missing.name,
    ) from None

from waltz_protocol import __version__
from waltz_spark.errors import reason
from waltz_spark.lag import Lag, LagListener
from waltz_spark.source import WaltzDataSource

__all__ = ["Lag", "LagListener", "WaltzDataSource", "__version__", "reason"]
