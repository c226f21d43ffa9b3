"""The client of the API server: what it sends, and what its answers and failures become."""
