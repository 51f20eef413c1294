from __future__ import annotations

import pytest

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.strategy.priority_class import add_default_tolerations, resolve_priority
from tests.cluster.corpus import context

PROD: Document = {"metadata": {"name": "koord-prod"}, "value": 9500, "preemptionPolicy": "Never"}
DEFAULT: Document = {"metadata": {"name": "everyone"}, "value": 7, "globalDefault": True}
LOWER_DEFAULT: Document = {"metadata": {"name": "late"}, "value": 3, "globalDefault": True}


def _pod(**spec: object) -> Document:
    return {"metadata": {"name": "p"}, "spec": dict(spec)}


def test_class_gives_value_and_policy() -> None:
    pod = _pod(priorityClassName="koord-prod")
    resolve_priority(pod, context(PROD))
    assert pod["spec"] == {"priorityClassName": "koord-prod", "priority": 9500, "preemptionPolicy": "Never"}


def test_without_a_class_the_lowest_global_default_is_taken() -> None:
    pod = _pod()
    resolve_priority(pod, context(PROD, DEFAULT, LOWER_DEFAULT))
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"]) == ("late", 3)


def test_without_any_class_priority_is_zero() -> None:
    pod = _pod()
    resolve_priority(pod, context())
    assert pod["spec"] == {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}


def test_unknown_class_is_forbidden() -> None:
    with pytest.raises(ApiError) as refused:
        resolve_priority(_pod(priorityClassName="x"), context())
    assert refused.value.status()["message"] == 'pods "p" is forbidden: no PriorityClass with name x was found'


def test_number_that_contradicts_the_class_is_forbidden() -> None:
    with pytest.raises(ApiError, match="the integer value of priority \\(1\\) must not be provided in pod spec"):
        resolve_priority(_pod(priorityClassName="koord-prod", priority=1), context(PROD))


def test_toleration_of_everything_needs_no_defaults() -> None:
    spec: Document = {"tolerations": [{"operator": "Exists"}]}
    add_default_tolerations(spec)
    assert spec["tolerations"] == [{"operator": "Exists"}]
