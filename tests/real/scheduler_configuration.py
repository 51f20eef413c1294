"""Configurations of koord-scheduler, for ours and the Go original's alike."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
_LOAD_AWARE: Final = {"name": "LoadAwareScheduling"}
PLAIN: Final[Mapping[str, Any]] = {"schedulerName": "koord-scheduler"}
LOAD_AWARE: Final[Mapping[str, Any]] = {
    **PLAIN,
    "plugins": {
        "filter": {"enabled": [_LOAD_AWARE]},
        "score": {"enabled": [{**_LOAD_AWARE, "weight": 1}]},
        "reserve": {"enabled": [_LOAD_AWARE]},
    },
}
"""A profile with LoadAwareScheduling at the points where Koordinator's own configuration has it."""
ALONE: Final[Mapping[str, Any]] = {"leaderElect": False}


def write_configuration(
    path: Path,
    *,
    kubeconfig: Path | None = None,
    leader_election: Mapping[str, Any] = ALONE,
    profile: Mapping[str, Any] = PLAIN,
    **others: Any,
) -> Path:
    """Write a configuration of one profile, with fast requests. ``kubeconfig`` may be given by flag instead."""
    named = {"kubeconfig": str(kubeconfig)} if kubeconfig is not None else {}
    document = {
        "apiVersion": API_VERSION,
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {**named, "qps": 5000, "burst": 5000},
        "leaderElection": dict(leader_election),
        "profiles": [dict(profile)],
        **others,
    }
    path.write_text(yaml.safe_dump(document))
    return path
