"""What became of requests: records, their SQLite tables, retention, and files for training."""
