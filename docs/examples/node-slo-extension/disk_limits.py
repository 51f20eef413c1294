"""Disk limits in NodeSLOs, for a node agent of one's own: the pool of a node decides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from koordinator.api.node import Node
from koordinator.base.errors import ConfigurationError

_POOL = "example.com/pool"


class DiskLimits:
    """The key ``disk-limits`` of the SLO ConfigMap says how many bytes a second each pool of nodes may read and write:

    disk-limits: '{"fast": 500000000, "slow": 50000000}'
    """

    key = "example.com/disk-limits"
    default: Mapping[str, int] = {}

    def merge(self, old: Any, data: Mapping[str, str]) -> Any:
        text = data.get("disk-limits", "{}")
        try:
            limits = json.loads(text)
        except ValueError as error:
            raise ConfigurationError(
                "disk-limits", text, f"a JSON object of bytes a second by pool: {error}"
            ) from error
        if not isinstance(limits, dict) or not all(isinstance(limit, int) for limit in limits.values()):
            raise ConfigurationError("disk-limits", text, "a JSON object of bytes a second by pool")
        return limits

    def for_node(self, node: Node, configuration: Any) -> Any | None:
        limit = configuration.get(node.metadata.labels.get(_POOL, ""))
        return None if limit is None else {"bytesPerSecond": limit}
