"""The stream connections: mounts, feeds and their readers."""
