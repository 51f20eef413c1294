"""Regular expressions in Go's syntax: which are taken, and what they match."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from tests.real.schema_cases.building import TEXT, Talk, refuse, spec

_REFUSED: Final = {
    "set-not-closed": "[a",
    "range-backwards": "[b-a]",
    "unknown-class": "[[:letter:]]",
    "unknown-script": r"\p{Klingon}",
    "look-behind": "(?<=a)b",
    "negative-look-ahead": "(?!a)b",
    "possessive": "a++",
    "atomic-group": "(?>a)",
    "repeated-too-often": "a{1001}",
    "repeated-backwards": "a{2,1}",
    "repeated-in-all-too-often": "((a{100}){100}){100}",
    "escape-unknown": r"\k",
    "escape-of-one-byte": r"\C",
    "end-of-python": r"a\Z",
    "escape-at-end": "a\\",
    "flag-unknown": "(?x)a",
    "group-name-twice": "(?P<n>a)(?P<n>b)",
    "group-name-bad": "(?P<n-m>a)",
    "group-reference": "(?P=n)",
    "repeat-of-start": "(*)",
    "lone-close": "a)b",
}
PATTERN_DEFINITIONS: dict[str, Document] = {
    f"pattern-{name}": spec(a={**TEXT, "pattern": pattern}) for name, pattern in _REFUSED.items()
}
_TAKEN: Final = {
    "backtracking": (r"^(a+)+$", "a" * 40 + "b", "aaaa"),
    "alternatives": (r"^(a|aa)+$", "a" * 60 + "b", "aaa"),
    "nested": (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 60, "aaB b"),
    "script": (r"^\p{Greek}+$", "abc", "αβγ"),
    "letter": (r"^\pL+$", "a1", "aéж"),
    "notletter": (r"^\PL+$", "a", "1 2"),
    "quoted": (r"^\Qa.b\E$", "axb", "a.b"),
    "code": (r"^\x{1F600}$", "x", "😀"),
    "flags": (r"(?i)^abc$", "abd", "aBC"),
    "dotall": (r"(?s)^a.b$", "acbb", "a\nb"),
    "nodotall": (r"^a.b$", "a\nb", "acb"),
    "multiline": (r"(?m)^b$", "ab", "a\nb\nc"),
    "lastline": (r"^a$", "a\n", "a"),
    "ungreedy": (r"(?U)^a+$", "b", "aa"),
    "boundary": (r"\bfoo\b", "xfoox", "a foo b"),
    "named": (r"^(?P<n>a)(?<m>b)$", "a", "ab"),
    "posix": (r"^[[:upper:]][[:^digit:]]$", "A1", "Ab"),
    "perl": (r"^[\d\s]+$", "1a", "1 2"),
    "brace": (r"^a{,2}$", "aa", "a{,2}"),
    "octal": (r"^\101$", "B", "A"),
    "anchors": (r"\Aab\z", "ab\n", "ab"),
    "dash": (r"^[a\-z]+$", "b", "a-z"),
    "empty": (r"^(|a)$", "b", ""),
    "wordset": (r"^\w+$", "é", "a_1"),
}
PATTERN_TALKS: Final = [
    Talk(
        "patterns",
        spec(**{name: {**TEXT, "pattern": pattern} for name, (pattern, _, _) in _TAKEN.items()}),
        [
            *(refuse(**{name: wrong}) for name, (_, wrong, _) in _TAKEN.items()),
            *(refuse(**{name: right}) for name, (_, _, right) in _TAKEN.items()),
        ],
    )
]
