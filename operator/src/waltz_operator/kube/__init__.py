"""The Kubernetes API as the operator uses it: configuration, a small asynchronous client, typed errors.

`config` finds the API server and the credentials, `kinds` knows the resources, `client` makes the
calls, `errors` says what went wrong. Nothing here decides anything.
"""
