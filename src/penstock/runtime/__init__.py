"""Background tasks, child processes, and where code is loaded from."""
