"""The output of kubectl without what no two clusters have in common: identities, times, hashes, addresses, ports."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from koordinator.api.document import Document

_LETTERS: Final = "[bcdf-hj-np-tv-xz2456789]"
"""Those of generated names."""
_HASH: Final = f"(?:{_LETTERS}{{8,10}}|[0-9a-f]{{9,10}})"
_TIME: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)"
_AGE: Final = r"(?:\d+(?:ms|s|m|h|d|y))+"
_REPLACED: Final = tuple(
    (re.compile(pattern, re.MULTILINE), replacement)
    for pattern, replacement in (
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
        (r"/tmp/kubectl-edit-\d+", "EDITED"),
        (r"^[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ (\w+\.go):\d+\]", r"LOGGED \1"),
        (_TIME, "TIME"),
        (r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
        (r"(?<![\w.])\d+ (?:years?|months?|weeks?|days?|hours?|minutes?|seconds?) ago", "AGO"),
        (rf"-{_HASH}-{_LETTERS}{{5}}\b", "-HASH-RANDOM"),
        (rf"-{_LETTERS}{{5}}\b", "-RANDOM"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+0000", "TIME"),
        (rf"(-|hash[=:] ?\"?|hash\":\")({_HASH})(?=\b|\")", r"\1HASH"),
        (r'(resourceVersion"?: ?"?)\d+', r"\1N"),
        (r"Resource Version: +\d+", "Resource Version: N"),
        (r"https://127\.0\.0\.1:\d+", "SERVER"),
        (r"127\.0\.0\.1:\d+", "SERVER"),
        (r"\b10\.(?:9[6-9]|10\d|11[01])\.\d+\.\d+", "ADDRESS"),
        (r"\b3[0-2]\d{3}(?=/|\b.*[Nn]ode[Pp]ort)", "NODEPORT"),
        (r"([Nn]ode[Pp]ort\"?:\s+(?:\w+\s+)?)3[0-2]\d{3}\b", r"\1NODEPORT"),
        (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "TOKEN"),
        (r"(?<=certificate-authority-data: )\S+", "CERTIFICATE"),
        (rf"(?<![\w.-])<?{_AGE}>?(?: \(x\d+ over {_AGE}\))?(?=\s|$)", "AGE"),
        (r" +$", ""),
        (r"^(?=Warning: (?:no controller|nothing) in this cluster )[^\n]*\n?", ""),
    )
)
"""Columns are as wide as what they hold, so that runs of spaces become one, too. The last one is the embedded server's
own kind of warning, of kinds on which nothing in it acts."""


_LEFT_OUT: Final = ("managedFields", "storageVersionHash")


def normal_form(output: str) -> str:
    """What two servers that do the same make kubectl print, letter for letter."""
    text = _without_field_managers(output)
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    return re.sub(r"(?<=\S)(?: {2,}|\t+)", " ", text)


def _without_field_managers(output: str) -> str:
    """The JSON of ``get --raw``, in one order of keys; other output as it is."""
    if not output.startswith("{"):
        return output
    try:
        document, end = json.JSONDecoder().raw_decode(output)
    except ValueError:
        return output
    return json.dumps(_pruned(document), indent=1, sort_keys=True) + output[end:].strip()


def _pruned(value: Any) -> Any:
    if isinstance(value, list):
        return [_pruned(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept: Document = {key: _pruned(each) for key, each in value.items() if key not in _LEFT_OUT}
    return kept
