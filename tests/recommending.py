"""Recommendations for tests, as the recommender writes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from koordinator.api.codec import convert
from koordinator.api.recommendation import Recommendation


def recommendation(
    name: str,
    containers: Mapping[str, Mapping[str, str]],
    written: datetime,
    *,
    app: str = "web",
    low_confidence: bool = False,
) -> Recommendation:
    """For the pods of namespace ``default`` with the label ``app``."""
    target = {"type": "podSelector", "podSelector": {"matchLabels": {"app": app}}}
    conditions: list[dict[str, Any]] = [
        {"type": "LowConfidence", "status": str(low_confidence), "reason": "InsufficientHistory", "message": "0.2 days"}
    ]
    recommended = [{"containerName": each, "resources": dict(amounts)} for each, amounts in containers.items()]
    return convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"target": target},
            "status": {
                "podStatus": {"containerStatuses": recommended},
                "updateTime": written,
                "conditions": conditions,
            },
        },
        Recommendation,
    )
