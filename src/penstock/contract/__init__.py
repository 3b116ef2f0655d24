"""The values and protocols every other layer is written in; it imports no I/O library."""
