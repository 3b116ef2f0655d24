"""The commands with their options and help, one module a command."""
