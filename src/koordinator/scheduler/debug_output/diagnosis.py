"""``--debug-diagnosis``: a JSON document for each pod that no node can take, with every node by plugin and reason."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from koordinator.api.timestamps import format_time
from koordinator.scheduler.engine.class_state import ClassState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.pod_info import PodInfo


def diagnosis_line(pod: PodInfo, document: dict[str, Any]) -> str:
    """The log line as the original writes it."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return f"dump diagnosis for {document['questionedKey']}, targetPod: {pod.key}/{pod.uid}: ${text}"


def diagnosis(pod: PodInfo, class_state: ClassState, columns: NodeColumns, now: datetime) -> dict[str, Any]:
    """What the original's Diagnosis says of a pod that no node can take."""
    document: dict[str, Any] = {"timestamp": format_time(now), "questionedKey": pod.key}
    if nominated := pod.pod.status.nominated_node_name:
        document["nominatedNode"] = nominated
    if class_state.plan.rejection is not None:
        document["preFilterMessage"] = class_state.plan.rejection[1].text
    schedule: dict[str, Any] = {"alreadyWaitForBound": 0}
    if details := failed_details(pod, class_state, columns):
        schedule["nodeFailedDetails"] = details
    return {**document, "isRootCausePod": True, "scheduleDiagnosis": schedule, "preemptionDiagnosis": None}


def failed_details(pod: PodInfo, class_state: ClassState, columns: NodeColumns) -> Sequence[dict[str, Any]]:
    """Nodes by (plugin, reason, whether eviction might help), in that order."""
    groups: dict[tuple[str, str, bool], list[str]] = {}
    for failure in class_state.failures() if class_state.plan.rejection is None else ():
        reasons = failure.plugin.reasons(pod, failure.state, failure.code)
        might_help = not any(reason.unresolvable for reason in reasons)
        key = failure.plugin.name, ", ".join(reason.text for reason in reasons), might_help
        groups.setdefault(key, []).extend(columns.names[row] for row in failure.rows.tolist())
    return [
        {"failedPlugin": plugin, "reason": reason, "preemptMightHelp": might_help, "failedNodes": sorted(nodes)}
        for (plugin, reason, might_help), nodes in sorted(
            groups.items(), key=lambda item: (item[0][0], item[0][1], not item[0][2])
        )
    ]
