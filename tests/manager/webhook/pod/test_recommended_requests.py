"""New pods request what their Recommendation says, if its policy has an update mode; an annotation says so."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.meta import ObjectMeta
from koordinator.api.recommendation import APPLIED, Recommendation
from koordinator.manager.recommender.policy import Rules
from koordinator.manager.webhook.pod.mutating import PodMutatingHandler
from koordinator.manager.webhook.pod.recommended_requests import FoundRecommendation, RecommendedRequests
from koordinator.model.recommendations import RecommendationIndex
from tests.manager.webhook.small_cluster import NoQuotaTrees, SmallCluster, profile, request_for

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AMOUNTS = {"cpu": "250m", "memory": "512Mi"}
INITIAL = Rules(update_mode="Initial")


def recommendation(*, low: bool = False, age: timedelta = timedelta(), **amounts: str) -> Recommendation:
    document: Document = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"target": {"type": "podSelector", "podSelector": {"matchLabels": {"app": "web"}}}},
        "status": {
            "podStatus": {"containerStatuses": [{"containerName": "main", "resources": amounts or AMOUNTS}]},
            "updateTime": (NOW - age).isoformat(),
            "conditions": [{"type": "LowConfidence", "status": str(low), "message": "too early"}],
        },
    }
    return convert(document, Recommendation)


class Known:
    """Recommendations of one policy."""

    def __init__(self, rules: Rules, *found: Recommendation) -> None:
        self._rules = rules
        self._index = RecommendationIndex()
        for each in found:
            self._index.put(each)

    def __len__(self) -> int:
        return len(self._index)

    def of(self, pod: ObjectMeta, namespace: str) -> FoundRecommendation | None:
        found = self._index.find(pod, namespace)
        return FoundRecommendation(found, self._rules) if found is not None else None


def pod(resources: Document, labels: Document | None = None) -> Document:
    metadata = {"generateName": "web-", "labels": {"app": "web", **(labels or {})}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main", "resources": resources}]}}


class Admitted:
    """A pod as the webhook leaves it."""

    def __init__(
        self, submitted: Document, found: Recommendation, rules: Rules = INITIAL, profiles: tuple[Document, ...] = ()
    ) -> None:
        self.told: list[str] = []
        handler = PodMutatingHandler(
            SmallCluster(*profiles),
            NoQuotaTrees(),
            lambda: 0,
            recommended=RecommendedRequests(Known(rules, found), lambda: NOW),
            on_applied=lambda kind, applied, _: self.told.extend(
                f"{kind.name} {each.metadata.name}" for each in applied
            ),
        )
        request = request_for({**submitted, "metadata": {**submitted["metadata"], "namespace": "shop"}})
        self.pod = handler.handle(request).changed or submitted

    @property
    def resources(self) -> Document:
        found: Document = self.pod["spec"]["containers"][0]["resources"]
        return found

    @property
    def applied(self) -> Any:
        text = (self.pod["metadata"].get("annotations") or {}).get(APPLIED)
        return None if text is None else json.loads(text)


def test_a_new_pod_requests_what_is_recommended_and_says_so() -> None:
    found = Admitted(pod({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}), recommendation())

    assert found.resources == {"requests": AMOUNTS, "limits": {"memory": "1Gi"}}
    assert found.applied == {
        "recommendation": "web",
        "by": "admission",
        "at": "2026-01-01T00:00:00Z",
        "containers": {
            "main": {
                "requests": {
                    "cpu": {"before": "1", "after": "250m"},
                    "memory": {"before": "1Gi", "after": "512Mi"},
                },
                "limits": {"memory": {"before": "2Gi", "after": "1Gi"}},
            }
        },
    }
    assert found.told == ["Recommendation web"]


@pytest.mark.parametrize(
    ("found", "rules", "skipped"),
    [
        (recommendation(), Rules(), None),
        (recommendation(low=True), INITIAL, "Recommendation shop/web is of low confidence: too early"),
        (
            recommendation(age=timedelta(hours=30)),
            INITIAL,
            "Recommendation shop/web is stale: it was written 30 hours",
        ),
        (recommendation(cpu="0"), INITIAL, "Recommendation shop/web recommends nothing yet"),
    ],
)
def test_what_must_not_be_used_changes_nothing_and_is_named_where_there_is_a_mode(
    found: Recommendation, rules: Rules, skipped: str | None
) -> None:
    requests = {"requests": {"cpu": "1"}}
    admitted = Admitted(pod(requests), found, rules)

    assert admitted.resources == requests
    assert (admitted.applied and admitted.applied["skipped"].removesuffix(" ago")) == skipped
    assert admitted.told == []


def test_low_confidence_is_used_where_the_policy_allows_it() -> None:
    rules = Rules(update_mode="Auto", low_confidence_is_used=True)
    assert Admitted(pod({"requests": {"cpu": "1"}}), recommendation(low=True), rules).resources["requests"] == AMOUNTS


def test_limits_stay_where_the_policy_controls_requests_only() -> None:
    rules = Rules(update_mode="Initial", requests_only=True)
    limited = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "100m", "memory": "1Gi"}}

    assert Admitted(pod(limited), recommendation(), rules).resources == {
        "requests": {"cpu": "100m", "memory": "512Mi"},
        "limits": {"cpu": "100m", "memory": "1Gi"},
    }


def test_a_pod_that_a_profile_makes_a_batch_pod_requests_batch_resources() -> None:
    batch = profile(qosClass="BE", priorityClassName="koordinator-batch")
    found = Admitted(pod({"requests": {"cpu": "1", "memory": "1Gi"}}), recommendation(), profiles=(batch,))

    assert found.resources["requests"] == {
        "kubernetes.io/batch-cpu": "250",
        "kubernetes.io/batch-memory": "512Mi",
    }
    extended = json.loads(found.pod["metadata"]["annotations"]["node.koordinator.sh/extended-resource-spec"])
    assert extended["containers"]["main"]["requests"]["kubernetes.io/batch-cpu"] == "250"


def test_the_label_of_a_profile_can_be_what_the_selector_matches() -> None:
    unlabelled = pod({"requests": {"cpu": "1"}}, {"app": "other"})
    found = Admitted(unlabelled, recommendation(), profiles=(profile(labels={"app": "web"}),))

    assert found.resources["requests"] == AMOUNTS


def test_a_pod_with_cpus_of_its_own_requests_whole_ones() -> None:
    found = Admitted(
        pod({"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}, {"koordinator.sh/qosClass": "LSR"}),
        recommendation(cpu="1100m"),
    )

    assert found.resources == {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}


def test_a_pod_with_requests_of_its_own_stays_as_it_is() -> None:
    whole = pod({})
    whole["spec"]["resources"] = {"requests": {"cpu": "1"}}
    found = Admitted(whole, recommendation())

    assert found.resources == {}
    assert "spec.resources" in found.applied["skipped"]


def test_a_pod_that_has_the_recommended_requests_gets_no_annotation() -> None:
    found = Admitted(pod({"requests": AMOUNTS}), recommendation())

    assert found.applied is None
    assert found.told == []
