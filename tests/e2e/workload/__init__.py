"""The load of the end-to-end run: a pod with one writer per partition that remembers every acknowledgement,
and its judge."""
