"""The feature gates of the original's koord-scheduler (v1.8.0), recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_RECORDED: Final[Mapping[str, Mapping[str, str]]] = json.loads(
    (Path(__file__).parent / "original_gates.json").read_text()
)
IN_HELP: Final = _RECORDED["help"]
"""Those that its --help lists: name -> stage and default."""
ACCEPTED: Final[Mapping[str, str]] = {**IN_HELP, **_RECORDED["settled"]}
"""And those that it takes and lists no more, of its metric kubernetes_feature_enabled: they are generally available or
deprecated."""


def gates_of(help_text: str) -> dict[str, str]:
    """Of a program's --help, but for AllAlpha and AllBeta."""
    found = re.findall(r"\b(\w+)=true\|false \((\w+) - default=(\w+)\)", help_text)
    states = {"true": "on", "false": "off"}
    return {name: f"{stage} {states[default]}" for name, stage, default in found if name not in ("AllAlpha", "AllBeta")}
