"""Every command and option against a live local cluster; docs/compatibility.md names the tests."""
