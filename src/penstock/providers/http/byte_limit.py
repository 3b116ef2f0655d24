"""The number of bytes that a provider may send in answer to one request."""

from __future__ import annotations

from penstock.contract.errors import MalformedResponse

UNCOUNTED_BYTES = 32 * 1024 * 1024
"""For what the token limit does not count: images, results of the provider's own tools."""
REPEATED = 4
"""Some APIs repeat the instructions and tools of a request in several events of its answer."""
ERROR_BYTES = 64 * 1024
"""The part of an error's body that is read; the rest is not needed to name the error."""
VECTOR_BYTES = 256 * 1024
"""The largest vector: 8,192 numbers, each written in 32 bytes."""
LIST_BYTES = 16 * 1024 * 1024
"""The largest list of models, or transcript."""
COUNT_BYTES = 1024 * 1024
"""The largest answer to a count of tokens."""


class ByteAllowance:
    """The bytes that are left for an answer; one object for all calls that the answer takes."""

    __slots__ = ("_left", "most", "setting")

    def __init__(self, most: int, setting: str = "") -> None:
        """`setting` is what raises the limit, as an error message names it."""
        self.most = most
        self.setting = setting
        self._left = most

    def take(self, count: int, address: str) -> None:
        """Subtract bytes that arrived from `address`; raises MalformedResponse beyond the limit.

        The error is not retryable: the same target would send as much again.
        """
        self._left -= count
        if self._left < 0:
            remedy = f"; raise {self.setting} if that is right" if self.setting else ""
            raise MalformedResponse(
                f"{address} sent more than {self.most} bytes{remedy}", retryable=False
            )
