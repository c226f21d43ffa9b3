"""The cluster under simulation: one module per role, and the world that puts them together."""
