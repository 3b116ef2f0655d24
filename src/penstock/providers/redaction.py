"""Keys that providers and gateways repeat in their errors, taken out of what is shown.

One list for every dialect: a gateway answers for any maker, and a caller may have mixed up two
keys. Where the provider refused the credentials, any long word with a digit goes as well, because a
refused key may have no beginning to know it by.
"""

from __future__ import annotations

import re

_SHOWN = "[key]"

# Values that stand behind a telling name: `key=...`, `"x-api-key": "..."`, `Signature=...`.
_NAMED = re.compile(
    r"""
    ( \b (?: [\w-]{0,40}key (?= = )
           | (?:x-)? (?:goog-)? api[-_ ]?key (?: [ ]provided)?
           | x-amz-[\w-]* (?:signature|credential|token) | (?:signature|credential) (?= = )
           | (?:proxy-)? authorization
           | (?:access|auth|client|id|refresh|security|session)[-_ ]?token
           | (?:aws[-_]?|client[-_]?)? secret (?:[-_]?access)? (?:[-_]?key)? | password
         )
      [\\"']* \s* [:=] \s* [\\"'\[]*
    )
    (?: (?:basic|bearer) \s+ )? [^\s\\"'&,;)\]}]+
    """,
    re.IGNORECASE | re.VERBOSE,
)
# Keys that are known by their beginning, and whatever follows "Bearer".
_KEY = re.compile(
    r"""
      \b sk-[\w*.-]{8,}                                     # OpenAI, Anthropic, DeepSeek, ...
    | \b (?:pk|rk|csk|xai|nvapi|pplx)-[\w*.-]{12,}
    | \b (?:gsk|hf|r8|fw|tgp)_[\w*.-]{12,}
    | \b (?:AIza|AQ\.|ya29\.)[\w*.-]{8,}                    # Google
    | \b (?-i: (?:AKIA|ASIA)[A-Z0-9]{12,} )                 # AWS; the words "Asia..." are none
    | \b ABSK[\w+/=]{12,} | \b bedrock-api-key-\S+
    | \b eyJ[\w-]{8,}(?:\.[\w-]*){1,4}                      # JSON Web Tokens
    | \b bearer\s+\S+
    """,
    re.IGNORECASE | re.VERBOSE,
)
# An address is no key, but a part of it may be one.
_LONG_WORD = re.compile(
    r"""
      (?<! [\w*+/=.-] ) (?! // ) (?= [\w*+/=.-]*\d ) [\w*+/=.-]{20,}
    | \b (?= [\w*-]*\d ) [\w*-]{20,}
    """,
    re.VERBOSE,
)


def without_keys(text: str, *, refused: bool = False) -> str:
    """The text with `[key]` in the place of every key; `refused` says that a key was the matter."""
    text = _KEY.sub(_SHOWN, _NAMED.sub(rf"\1{_SHOWN}", text))
    return _LONG_WORD.sub(_SHOWN, text) if refused else text
