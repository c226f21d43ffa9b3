"""The sub-commands of `waltz`: parse, call a library, render."""
