"""The process around the planner, on virtual time: the Lease, the workers, Events, settings."""
