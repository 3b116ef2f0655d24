"""The processes of a gateway: start, workers, reload, drain."""
