"""SQLite files: connections, migrations, identity, and error codes."""
