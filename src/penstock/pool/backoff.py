"""How long to wait before the same target is asked again, and how often that may happen at all."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from penstock.contract.errors import PenstockError, ProviderTimeout

JITTER = 0.1
"""The share of a provider's own pause that is added, so that not everybody comes back at once."""
_DOUBLINGS = 60
"""Beyond these every sensible cap is reached, and a float would overflow at last."""


def pause_s(
    error: PenstockError,
    retry: int,
    *,
    base_s: float = 0.25,
    cap_s: float = 8.0,
    longest_s: float,
    random: Callable[[], float],
) -> float | None:
    """Seconds to wait before retry number `retry` (1, 2, ...), or None: do not ask this one again.

    A provider that names a pause gets it, and a little more; it is not worth the wait when the
    pause is above `longest_s`. Otherwise anything up to `base_s`, doubled with each retry until
    `cap_s`, is as likely ("full jitter"): those who failed together do not return together. No
    pause is longer than `longest_s`. `random` gives numbers from 0 to 1.

    A silent target is not asked again, even if its error says that it might be.
    """
    if not error.retryable or isinstance(error, ProviderTimeout) or longest_s < 0:
        return None
    asked = error.retry_after
    # "At once" is a pause of nothing, which our own is not shorter than.
    if asked is None or asked <= 0:
        ceiling = base_s * 2.0 ** min(retry - 1, _DOUBLINGS)
        return min(ceiling, cap_s, longest_s) * random()
    if asked > longest_s:
        return None
    return min(asked * (1 + JITTER * random()), longest_s)


class RetryBudget:
    """Keeps retries a fraction of the traffic, so that they cannot drown a target that struggles.

    Each request pays `ratio` of a retry in, up to `most`; the first `floor` retries are free, or
    the first failure of a quiet day could not be retried. Whatever happens, there are never more
    retries than `floor + ratio * requests`.
    """

    __slots__ = ("_balance", "_deposit", "_most", "_price")

    def __init__(self, ratio: float = 0.2, floor: int = 10, most: int = 100) -> None:
        """Begin with `floor` retries."""
        if not 0 <= ratio <= 1:
            raise ValueError(f"ratio={ratio}: give a share of the requests, from 0 to 1")
        # Whole numbers: a fifth five times over is one retry, and no rounding adds up.
        self._deposit, self._price = Decimal(str(ratio)).as_integer_ratio()
        self._balance = floor * self._price
        self._most = max(floor, most) * self._price

    @property
    def left(self) -> int:
        """Retries that may be made now."""
        return self._balance // self._price

    def request(self) -> None:
        """A request began: pay in. Its retries are not requests."""
        self._balance = min(self._balance + self._deposit, self._most)

    def spend(self) -> bool:
        """Take one retry out; False: there is none left, go on to another target or give up."""
        if self._balance < self._price:
            return False
        self._balance -= self._price
        return True
