"""The ConfigMap that configures how a cluster shares its nodes: its name and its keys.

Each value is a JSON document: a strategy for the cluster, and strategies for groups of nodes that are merged onto it.
"""

from __future__ import annotations

from typing import Final

DEFAULT_NAME: Final = "slo-controller-config"

COLOCATION: Final = "colocation-config"
RESOURCE_THRESHOLD: Final = "resource-threshold-config"
RESOURCE_QOS: Final = "resource-qos-config"
CPU_BURST: Final = "cpu-burst-config"
SYSTEM: Final = "system-config"
HOST_APPLICATION: Final = "host-application-config"
CPU_NORMALIZATION: Final = "cpu-normalization-config"
RESOURCE_AMPLIFICATION: Final = "resource-amplification-config"
ADAPTIVE_SLO: Final = "adaptive-slo-config"
"""Of ours alone."""
