"""Stores for the events and snapshots of campaigns: memory, SQLite, PostgreSQL."""
