"""Where the events and snapshots of campaigns are kept: memory, SQLite, PostgreSQL."""
