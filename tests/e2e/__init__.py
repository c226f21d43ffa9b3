"""The operator on real Kubernetes: `make e2e` builds the images, makes a kind cluster, runs the scenarios,
prints a table."""
