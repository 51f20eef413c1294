"""The samples of custom kinds, shared by the tests that need no API server and those that need a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from koordinator.api import kinds
from koordinator.api.kinds import Kind

_DIRECTORY = Path(__file__).parent / "samples"

CUSTOM_KINDS: dict[str, Kind[Any]] = {
    "nodemetric": kinds.NODE_METRICS,
    "nodeslo": kinds.NODE_SLOS,
    "colocation_profile": kinds.CLUSTER_COLOCATION_PROFILES,
    "reservation": kinds.RESERVATIONS,
    "device": kinds.DEVICES,
    "pod_migration_job": kinds.POD_MIGRATION_JOBS,
    "pod_group": kinds.POD_GROUPS,
    "elastic_quota": kinds.ELASTIC_QUOTAS,
    "elastic_quota_profile": kinds.ELASTIC_QUOTA_PROFILES,
    "node_resource_topology": kinds.NODE_RESOURCE_TOPOLOGIES,
    "stored_node_resource_topology": kinds.STORED_NODE_RESOURCE_TOPOLOGIES,
    "cluster_network_topology": kinds.CLUSTER_NETWORK_TOPOLOGIES,
    "recommendation": kinds.RECOMMENDATIONS,
    "schedule_explanation": kinds.SCHEDULE_EXPLANATIONS,
}
"""Name of the sample -> its kind."""


def load_sample(name: str) -> dict[str, Any]:
    """One sample as a document; every field of its kind is set somewhere in it."""
    document: dict[str, Any] = yaml.safe_load((_DIRECTORY / f"{name}.yaml").read_text())
    return document


def without_empty_structs(document: Any, pattern: Any) -> Any:
    """The document without the empty structs that the pattern lacks: Go always writes those, people never do."""
    if isinstance(document, dict) and isinstance(pattern, dict):
        return {
            key: without_empty_structs(value, pattern.get(key))
            for key, value in document.items()
            if key in pattern or _without_empty_members(value) != {}
        }
    if isinstance(document, list) and isinstance(pattern, list) and len(document) == len(pattern):
        return [without_empty_structs(value, other) for value, other in zip(document, pattern, strict=True)]
    return document


def _without_empty_members(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    members = {key: _without_empty_members(member) for key, member in value.items()}
    return {key: member for key, member in members.items() if member != {}}
