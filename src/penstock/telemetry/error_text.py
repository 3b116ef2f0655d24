"""What is kept of the text of an error: short, and without keys.

Providers take their own keys out of their errors before anything else reads them.
"""

from __future__ import annotations

import re

from penstock.contract.checks.lengths import cut
from penstock.contract.errors import PenstockError

LONGEST_ERROR_TEXT = 500
_KEY_BEGINS = "psk_"
_KEY_TEXT = re.compile(rf"{_KEY_BEGINS}[\w-]+")


def mask_keys(text: str) -> str:
    """The text without keys of this gateway."""
    return _KEY_TEXT.sub(f"{_KEY_BEGINS}***", text) if _KEY_BEGINS in text else text


def error_text_of(error: BaseException | None) -> str | None:
    """What a provider, or Penstock, said; None for errors that nothing is known about."""
    if not isinstance(error, PenstockError) or not error.message:
        return None
    return cut(mask_keys(error.message), LONGEST_ERROR_TEXT)
