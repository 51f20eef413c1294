"""What koord-manager's webhooks spend on a pod that is created: the bodies of both reviews in, both responses out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.manager.webhook.dispatch import Webhook
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.pod.mutating import PodMutatingHandler
from koordinator.manager.webhook.pod.validating import PodValidatingHandler
from tests.costs.call_counter import CallCounter
from tests.costs.figures import Cost
from tests.manager.webhook.reviews import at_once, review
from tests.manager.webhook.small_cluster import NoQuotaTrees, SmallCluster, profile

_PIECES: Final = 20
Document = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """A pod, and the ClusterColocationProfiles that are there; the last of them is about its label ``app``."""

    pod: Document
    profiles: Sequence[Document] = ()
    priority_class: str = ""


def _pod(resources: Document, **labels: str) -> Document:
    container = {
        "name": "main",
        "image": "registry.example/web:1",
        "resources": {"requests": resources, "limits": resources},
        "env": [{"name": f"VARIABLE_{number}", "value": "value"} for number in range(10)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web", **labels}},
        "spec": {"containers": [container], "restartPolicy": "Always"},
    }


_NATIVE: Final = {"cpu": "1", "memory": "2Gi"}
_BATCH: Final = {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "2Gi"}
_OTHERS: Final = [
    profile(f"team-{number}", selector={"matchLabels": {"team": f"team-{number}"}}, qosClass="BE")
    for number in range(10)
]
_COLOCATED: Final = profile(
    "web",
    selector={"matchLabels": {"app": "web"}},
    qosClass="BE",
    priorityClassName="koordinator-batch",
    koordinatorPriority=1111,
    schedulerName="koord-scheduler",
    labels={"colocated": "yes"},
    annotations={"by": "web"},
)

SHAPES: Final[dict[str, Shape]] = {
    "a plain pod": Shape(_pod(_NATIVE)),
    "a plain pod, ten profiles of others": Shape(_pod(_NATIVE), _OTHERS),
    "a pod with a ClusterColocationProfile": Shape(_pod(_NATIVE), [*_OTHERS, _COLOCATED]),
    "a batch pod": Shape(
        {
            **(batch := _pod(_BATCH, **{"koordinator.sh/qosClass": "BE"})),
            "spec": {**batch["spec"], "priority": 5999, "priorityClassName": "koordinator-batch"},
        }
    ),
}


def cost(shape: Shape) -> Cost:
    """Of an admission, the same in every run."""
    metrics, clock, counter = WebhookMetrics(Metrics()), ManualClock(), CallCounter()
    mutating = Webhook(PodMutatingHandler(SmallCluster(*shape.profiles), NoQuotaTrees(), lambda: 0), metrics, clock)
    validating = Webhook(PodValidatingHandler(), metrics, clock)
    body = review(object=shape.pod)
    # Once before it counts, with what is compiled on first sight.
    responses = [at_once(webhook.respond(body)) for webhook in (mutating, validating)]
    assert all(response["allowed"] for response in responses), responses
    with counter.counting():
        for _ in range(_PIECES):
            for webhook in (mutating, validating):
                # Not by a function of the tests, with which all that it calls would not count.
                try:
                    webhook.respond(body).send(None)
                except StopIteration:
                    continue
    return Cost.of(counter.calls, _PIECES)
