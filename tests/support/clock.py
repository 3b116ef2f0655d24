"""A clock that stands still until it is told."""


class ManualClock:
    """Call it for the time in seconds; set `now` to move it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
