"""docs/examples/k9s-plugins.yaml, read as k9s reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml

from tests.docs.pages import ROOT

EXAMPLE: Final = ROOT / "docs/examples/k9s-plugins.yaml"
FIELDS: Final[Mapping[str, type]] = {
    "shortCut": str,
    "override": bool,
    "description": str,
    "confirm": bool,
    "dangerous": bool,
    "scopes": list,
    "command": str,
    "background": bool,
    "overwriteOutput": bool,
    "args": list,
    "inputs": list,
}
"""What a plugin may have, as internal/config/json/schemas/plugins.json of k9s says."""
REQUIRED: Final = {"shortCut", "description", "scopes", "command"}
# As envRX in internal/view/env.go: $NAME and ${NAME}; of others k9s leaves the text as it is.
_VARIABLE: Final = re.compile(r"\$\{?(\w+)\}?")


def plugins() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(EXAMPLE.read_text())["plugins"]
    return found


def command_of(plugin: Mapping[str, Any], environment: Mapping[str, str]) -> list[str]:
    """The words that k9s executes for a row, with its variables in their places."""
    words = [plugin["command"], *plugin["args"]]
    return [_VARIABLE.sub(lambda found: environment.get(found[1], found[0]), word) for word in words]
