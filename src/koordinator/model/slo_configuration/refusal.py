"""The webhook's message for a refused SLO configuration, which users' consoles parse.

A JSON object between three underscores on each side (pkg/webhook/util/err/json_error.go), written as Go's encoder does.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec

from koordinator.base.errors import KoordinatorError

_GO_ESCAPES: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


class RefusalReason(StrEnum):
    """The values are part of the contract, misspelt as they are."""

    OVERLAP = "NodeStrategiesOverlap"
    NODE_CONFLICT = "ExistNodeConfict"
    PARSE_FAILED = "ParseConfigFail"
    INVALID = "ConfigParamInvalid"


class RefusedConfigurationError(KoordinatorError):
    """The text is the message of the response, which has the HTTP code 400."""


def refused(reason: RefusalReason, message: str | dict[str, Any]) -> RefusedConfigurationError:
    """The refusal in its structured form; a dict keeps its order."""
    document = msgspec.json.encode({"reason": reason.value, "message": message}).decode()
    return RefusedConfigurationError(f"___{document.translate(_GO_ESCAPES)}___")


def conflict(
    reason: RefusalReason, key: str, strategies: list[str], example_nodes: list[str] | None = None
) -> RefusedConfigurationError:
    """Refused because more than one strategy of ``key`` selects the same nodes."""
    message: dict[str, Any] = {"config": key, "strategies": strategies}
    if example_nodes:
        message["exampleNodes"] = example_nodes
    return refused(reason, message)
