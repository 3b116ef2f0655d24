"""Names and schemes that announce a credential: what `redaction` masks by its position.

A label is a name or a scheme with the separator behind it, so that the value begins where the match
ends. Quotes, separators and spaces are recognised as they are, with backslashes before them, and
in the encodings of JSON, HTML and URLs.
"""

from __future__ import annotations

import re

_NAME = r"""
  (?: api [-_ ]? (?: key | token | secret )
    | (?: access | account | admin | app | application | auth | client | consumer | encryption
        | function | functions | license | master | private | secret | service | shared | signing
        | storage | subscription | virtual ) [-_ ]? key
    | (?: access | auth | authentication | bearer | client | csrf | gateway | id | identity | jwt
        | oauth | personal | refresh | secret | security | service | session | user | vault
        | xsrf ) [-_ ]? token
    | x- [a-z0-9-]{0,40}? (?: key | token | secret | auth | signature | credential ) (?! [\w-] )
    | (?: aws [-_]? | client [-_ ]? | app [-_ ]? | shared [-_ ]? )? secret
      (?: [-_ ]? access )? (?: [-_ ]? key )?
    | pass (?: word | wd | phrase ) | authori [sz] ation | (?<! [a-z] ) (?: set- )? cookie
    | jwt | credential s?
  )
"""
_QUOTE = r"""(?: \\{0,64} ["'`\u201d\u2019] | &quot; | &apos; | &\#(?:34|39|x22|x27); | %22 | %27
               | \\{1,64} u00(?:22|27) )"""
_SPACE = r"""(?: \s | \\{1,64}[nrt] | \\{1,64}u00(?:20|09|0a|0d|a0) | %20 | %09 | %0[ad] | \+
               | &nbsp; | &\#(?:32|160|x20); )"""
_MARK = r"""(?: => | -> | := | [:=>] (?: [ ]? [|>] -? (?= \s ) )? | %3[ad] | &gt;
              | &\#(?:58|61|x3a|x3d); | \\{1,64} u003[ad] )"""
_FILLER = r"""(?: [ ] (?: provided | supplied | given | received | used | value | header | parameter
                        | field | passed | sent | specified | presented | submitted | you | your
                        | is | was | were | with | of | that | which | gave
                        | entered | configured | got | we | id | named | called
                        | starting | beginning | ending ) ){0,4}"""
_BEGIN = r"(?: (?<! [a-z0-9_] ) | (?<= \\[nrtbf] ) | (?<= %[0-9a-f]{2} ) | (?<= \\u[0-9a-f]{4} ) )"
_RULE = rf"""(?: {_SPACE} | (?<= \s ) [-_~/] | [.]{{3}} | [|*#\u2026\u2013\u2014\u2022] )"""
"""What tables, lists and emphasis put between a word and the next one."""
_OPEN = rf"""(?: [\[(\{{<\u00ab\u2039\u201c\u201e\u2018\u201a] | < [a-z]{{1,10}} >
               | &lt; | &\#(?:40|60|91|123); | %(?:28|3c|5b|7b) | \\{{1,64}} u00(?:28|3c|5b|7b) )
             \s{{0,2}} (?: [\[(\{{<] | {_QUOTE} ){{0,2}}"""
"""A bracket, a tag or a quotation mark of prose, and what may follow it before a value."""
_LIKE_A_KEY = r"(?= [\w+/=.~-]{8} ) (?= [\w+/.~-]{0,64} (?-i: [0-9+/=] | [A-Za-z][A-Z] ) )"
"""Eight characters and a digit or a capital inside: required only where a label is a usual word."""
_NO_VARIABLE = r"(?! (?-i: [A-Z]{2,} (?: _ [A-Z0-9]{1,32} ){1,8} ) (?! [\w+/=.~-] ) )"
"""Not the name of an environment variable, such as `OPENAI_API_KEY`."""
_LONG_KEY = rf"(?= [\w+/=.~-]{{12}} ) {_LIKE_A_KEY} {_NO_VARIABLE}"
_NO_NAME = r"""(?! (?-i: (?: [a-z]{1,32} [0-9]{0,2} | [0-9]{1,8} [a-z]? )
                   (?: [._-] (?: [a-z]{1,32} [0-9]{0,2} | [0-9]{1,8} [a-z]? ) ){1,16} )
                   [.]? (?! [\w+/=.~-] ) )"""
"""Not the name of a model or the path of a field: `gpt-4o-mini`, `messages.0.content`."""
_SURELY_A_KEY = rf"""(?= [\w+/=.~-]{{16}} ) {_NO_VARIABLE} {_NO_NAME}
                     (?= [\w+/.~-]{{0,64}} (?-i: [0-9] | [A-Z]{{3}} ) )"""
"""What no name of a field is: for labels that are words of ordinary sentences."""

_AFTER_NAME = rf"""
  (?: {_QUOTE}{{0,3}} [\])]? {_FILLER} {_SPACE}{{0,8}} {_MARK} {_SPACE}{{0,8}}
    | {_QUOTE} {_SPACE}{{0,8}} , {_SPACE}{{0,8}} (?= [\[(]? [bu]? {_QUOTE} )
      (?! [bu]? (?P<same> {_QUOTE} ) [\w -]{{0,64}} (?P=same) {_SPACE}{{0,8}} : )
    | {_FILLER} {_SPACE}{{1,8}} (?= {_QUOTE} \S )
    | {_FILLER} {_RULE}{{0,8}} (?= {_OPEN} {_LONG_KEY} )
    | {_FILLER} {_RULE}{{1,8}} (?= {_LONG_KEY} )
  )
"""
# These are labels only before `=`, or as the quoted name of a field.
_WEAK_NAME = rf"""
  (?: (?: key | token | secret | sig | signature | credential | auth | pwd ) {_SPACE}{{0,3}}
      (?: = (?! [=>] ) | %3d | \\{{1,64}}u003d | &\#(?:61|x3d); ) {_SPACE}{{0,8}}
    | {_QUOTE} (?: token | auth | pass | pwd | sig | signature ) {_QUOTE} {_SPACE}{{0,8}}
      {_MARK} {_SPACE}{{0,8}} (?= [\[(]? [bu]? {_QUOTE} )
    | {_QUOTE} key {_QUOTE} {_SPACE}{{0,8}} : {_SPACE}{{0,8}} (?= {_QUOTE} )
      (?! {_QUOTE} (?-i: [a-z_. -]{{0,64}} ) {_QUOTE} )
  )
"""
_OPTION = r"""
  (?: (?<! \S ) -- [a-z-]{0,40} (?: key | token | secret | password | pass | auth | bearer )
      \s{1,8} (?! - )
    | (?<! \S ) (?: -u | --user | --proxy-user ) \s{1,8} (?= [^\s:]{0,200} : )
  )
"""
_BETWEEN = rf"(?: {_QUOTE}{{0,2}} (?: {_SPACE} | [:=] | , (?= \s{{0,8}} [bu]? {_QUOTE} ) ){{1,8}} )"
# "Bearer authentication is required" announces nothing.
_PROSE = r"""
  (?: tokens? | auth | authori[sz]ation | authentication | scheme | header | format | prefix | key
    | credentials? | realm | error | and | or | is | in | with | for | from | not | to | the | as
    | must | required | missing | was ) (?= [\s,;:)"'`] | [.]? (?: \s | \Z ) )
"""
_SCHEME = rf"""
  {_BEGIN}
  (?: bearer (?: {_BETWEEN} (?: token | key | auth | credentials? ) {_BETWEEN} {_LIKE_A_KEY}
               | {_BETWEEN} (?! {_PROSE} ) )
    | (?: basic | digest | negotiate | ntlm | token | api[-_]?key | hawk | dpop | sharedkey )
      {_BETWEEN} {_LIKE_A_KEY}
  )
"""
# "The token '...' is invalid", "no such key (...)".
_WORD = rf"""
  {_BEGIN} (?: token | key | credentials? | signature | auth | pwd )
  {_FILLER} (?: {_RULE} | {_MARK} ){{0,8}}
  (?: (?= (?: {_OPEN} | {_QUOTE}{{1,2}} ) {_SURELY_A_KEY} )
    | (?<! [\w-] ) (?= {_SURELY_A_KEY} )
  )
"""
# What a validation error says of a value, apart from its name: FastAPI's `input`, for example.
_VALUE = rf"""
  {_BEGIN} (?: input_value | input | values? | val | got | received | actual | provided | given )
  {_QUOTE}{{0,2}} {_SPACE}{{0,8}} {_MARK} {_SPACE}{{0,8}}
"""

_FLAGS = re.IGNORECASE | re.VERBOSE
_ANY = rf"(?P<name> {_NAME} ) {_AFTER_NAME} | {_WEAK_NAME} | {_OPTION} | {_SCHEME} | {_WORD}"

NAME = re.compile(_NAME, _FLAGS)
"""A name that announces a credential, wherever it stands."""
LABEL = re.compile(_ANY, _FLAGS)
"""A name or scheme, and what stands between it and the value."""
LABEL_OR_VALUE = re.compile(rf"{_ANY} | {_VALUE}", _FLAGS)
"""The same, and the words for a value whose name stands elsewhere in the text."""

_FIELD = re.compile(
    rf"(?: .{{0,64}} {_NAME} | (?: .{{0,64}} [._-] )? (?: token | auth | pwd ) )", _FLAGS
)
_VALUE_FIELD = frozenset(
    {
        "actual",
        "given",
        "got",
        "input",
        "input_value",
        "provided",
        "received",
        "val",
        "value",
        "values",
    }
)


def announces(name: str) -> bool:
    """Whether a field of this name holds a credential."""
    return _FIELD.fullmatch(name) is not None


def holds_a_value(name: str) -> bool:
    """Whether a field of this name holds the value of another field, which stands beside it."""
    return name.lower() in _VALUE_FIELD
