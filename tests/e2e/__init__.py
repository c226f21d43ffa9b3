"""The operator on real Kubernetes: `make e2e` builds the images, makes a kind cluster, runs the scenarios,
prints a table."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "spark-on-k8s" / "deploy"))
"""Where the renderer of Spark applications is: it runs from the checkout and is in no wheel."""
