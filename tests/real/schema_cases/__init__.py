"""Custom resources and their schemas, whose fate on the embedded API is compared with that on the real server.

``DEFINITIONS`` are created as a dry run: only what is said of the schema counts. A ``Talk`` is a definition that is
served, and the requests that are made of its objects, one after the other.
"""

from __future__ import annotations

from tests.real.schema_cases.building import GROUP, WITH_STATUS, Request, Talk
from tests.real.schema_cases.definitions import DEFINITIONS as STRUCTURAL_DEFINITIONS
from tests.real.schema_cases.definitions import SPECS, STATUS_DEFINITIONS
from tests.real.schema_cases.fields import DEFAULTS, EMBEDDED_OBJECTS, PRUNING
from tests.real.schema_cases.formats import FORMATS
from tests.real.schema_cases.patterns import PATTERN_DEFINITIONS, PATTERN_TALKS
from tests.real.schema_cases.rules import RULE_DEFINITIONS, RULE_TALKS
from tests.real.schema_cases.updates import LISTS, RATCHETING, STATUS
from tests.real.schema_cases.values import VALUES

__all__ = ["DEFINITIONS", "GROUP", "SPECS", "STATUS_DEFINITIONS", "TALKS", "WITH_STATUS", "Request", "Talk"]
DEFINITIONS = {**STRUCTURAL_DEFINITIONS, **PATTERN_DEFINITIONS, **RULE_DEFINITIONS}
TALKS = [
    *VALUES,
    *PATTERN_TALKS,
    *FORMATS,
    *PRUNING,
    *DEFAULTS,
    *EMBEDDED_OBJECTS,
    *LISTS,
    *RATCHETING,
    *STATUS,
    *RULE_TALKS,
]
