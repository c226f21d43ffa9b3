"""Every command and option against a live local cluster; docs/compatibility-commands.md names the tests."""
