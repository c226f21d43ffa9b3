"""What a person writes and reads: WaltzCluster and WaltzMigration, version v1alpha1. Pure.

The models of this package are the one source: `crd.py` makes the CustomResourceDefinitions of `crds/`
from them, tests hold the files and `docs/operator-fields.md` equal to them. `parse.py` reads objects as the
API server shows them, `validate.py` says what the schema cannot say, `topology.py` derives every name. Next
stage: `waltz_operator.resources`.
"""
