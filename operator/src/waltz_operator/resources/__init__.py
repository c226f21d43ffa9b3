"""The Kubernetes objects of a cluster, as values for server-side apply. Pure: specification and inputs in,
objects out.

`desired.py` puts them together, in the order in which they are applied; one module per part (storage,
server, zookeeper, network, monitoring, certificates, copy_job). `config.py` renders the configuration files
that the containers mount. Next stage: `waltz_operator.plan.cluster` decides when each object is applied.
"""

from waltz_operator.resources.all_objects import desired_objects, impossible_changes, optional_kinds
from waltz_operator.resources.copy_job import copy_job
from waltz_operator.resources.inputs import RenderInputs, VolumeFacts

__all__ = [
    "RenderInputs",
    "VolumeFacts",
    "copy_job",
    "desired_objects",
    "impossible_changes",
    "optional_kinds",
]
