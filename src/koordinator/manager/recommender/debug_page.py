"""The HTTP endpoint that shows what a recommendation follows from: the distribution of each container's usage."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from koordinator.api.codec import to_document
from koordinator.kube.pages import Handler, Request, Response, json_response
from koordinator.manager.recommender.container_model import ContainerModel
from koordinator.manager.recommender.tracked import Tracked
from koordinator.model.decaying_histogram import DecayingHistogram

PATH: Final = "/recommendations/{namespace}/{name}"
_PERCENTILES: Final = (0.5, 0.9, 0.95, 0.99)


def recommendation_page(find: Callable[[str, str], Tracked | None]) -> Handler:
    """The handler of PATH: responds with JSON, or 404 with a message. ``find`` maps a namespace and a name to what is
    known of the Recommendation."""

    async def handle(request: Request) -> Response:
        namespace, name = request.parameters["namespace"], request.parameters["name"]
        tracked = find(namespace, name)
        if tracked is None:
            text = f"Recommendation {namespace}/{name} is not known here: it does not exist, or another replica leads"
            return json_response({"message": text}, 404)
        return json_response(recommendation_document(tracked))

    return handle


def recommendation_document(tracked: Tracked) -> dict[str, Any]:
    """CPU in cores, memory in bytes."""
    return {
        "recommendation": tracked.key,
        "pods": sorted(pod.metadata.name for pod in tracked.pods),
        "problem": tracked.problem.message if tracked.problem is not None else "",
        "policyError": tracked.policy_error,
        "updateMode": tracked.rules.update_mode,
        "notResized": {name or "*": reason for name, reason in sorted(tracked.waiting.items())},
        "containers": {name: _container(model, tracked.time.offset) for name, model in sorted(tracked.models.items())},
    }


def _container(model: ContainerModel, offset: timedelta) -> dict[str, Any]:
    history = model.history.moved(-offset)
    return {
        "samples": history.count,
        "firstSample": to_document(history.first),
        "lastSample": to_document(history.last),
        "cpu": _distribution(model.cpu),
        "memory": _distribution(model.memory),
    }


def _distribution(histogram: DecayingHistogram) -> dict[str, float]:
    summary = histogram.summary()
    percentiles = {f"p{fraction * 100:g}": histogram.percentile(fraction) for fraction in _PERCENTILES}
    return {
        "mean": summary.mean,
        "standardDeviation": summary.standard_deviation,
        **percentiles,
        "max": summary.maximum,
    }
