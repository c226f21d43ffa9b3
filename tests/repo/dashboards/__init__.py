"""The Grafana dashboards of `manifests/monitoring/dashboards`, as values; `test_dashboards` writes and checks
them."""
