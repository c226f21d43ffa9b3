"""Migrations: ladder, placement, state machine."""
