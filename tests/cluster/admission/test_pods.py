"""What the plugins Priority and DefaultTolerationSeconds make of a pod."""

from __future__ import annotations

import asyncio

import pytest

from koordinator.api.document import Document
from koordinator.cluster.admission.chain import Plugin
from koordinator.cluster.admission.pods import DefaultTolerationSeconds, Priority, merged
from koordinator.cluster.errors import ApiError
from koordinator.cluster.verbs.environment import Attributes
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.target import Target
from tests.cluster.corpus import RESOURCES, context

PROD: Document = {"metadata": {"name": "koord-prod"}, "value": 9500, "preemptionPolicy": "Never"}
DEFAULT: Document = {"metadata": {"name": "everyone"}, "value": 7, "globalDefault": True}
LOWER_DEFAULT: Document = {"metadata": {"name": "late"}, "value": 3, "globalDefault": True}


def _spec(plugin: Plugin, spec: Document, *priority_classes: Document) -> Document:
    """Of a pod that has been through the plugin."""
    pod = {"metadata": {"generateName": "p-"}, "spec": spec}
    target = Target(RESOURCES["v1", "Pod"], "default")
    about = context(*priority_classes)
    asyncio.run(plugin.mutate(Attributes("CREATE", target, pod, None, about, WriteOptions())))
    return spec


def test_class_gives_value_and_policy() -> None:
    spec = _spec(Priority(), {"priorityClassName": "koord-prod"}, PROD)
    assert spec == {"priorityClassName": "koord-prod", "priority": 9500, "preemptionPolicy": "Never"}


def test_without_a_class_the_lowest_global_default_is_taken() -> None:
    spec = _spec(Priority(), {}, PROD, DEFAULT, LOWER_DEFAULT)
    assert (spec["priorityClassName"], spec["priority"]) == ("late", 3)


def test_without_any_class_priority_is_zero() -> None:
    assert _spec(Priority(), {}) == {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}


def test_unknown_class_is_forbidden() -> None:
    with pytest.raises(ApiError) as refused:
        _spec(Priority(), {"priorityClassName": "x"})
    assert refused.value.status()["message"] == 'pods "p-" is forbidden: no PriorityClass with name x was found'


def test_number_that_contradicts_the_class_is_forbidden() -> None:
    with pytest.raises(ApiError, match="the integer value of priority \\(1\\) must not be provided in pod spec"):
        _spec(Priority(), {"priorityClassName": "koord-prod", "priority": 1}, PROD)


def test_toleration_of_everything_needs_no_defaults() -> None:
    spec = _spec(DefaultTolerationSeconds(), {"tolerations": [{"operator": "Exists"}]})
    assert spec["tolerations"] == [{"operator": "Exists"}]


_ANY = {"key": "a", "operator": "Exists"}
_ONE = {"key": "a", "operator": "Equal", "value": "1", "effect": "NoSchedule"}
_SHORT = {"key": "b", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
_LONG = {**_SHORT, "tolerationSeconds": 9}
_EVER = {"key": "b", "operator": "Exists", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([_ONE], [_ONE], [_ONE]),
        ([_ONE], [_ANY], [_ANY]),
        ([_ANY], [_ONE], [_ANY]),
        ([_SHORT], [_LONG], [_LONG]),
        ([_LONG], [_EVER], [_EVER]),
        ([_ONE], [{"operator": "Exists"}], [{"operator": "Exists"}]),
        ([_ONE], [{**_ONE, "value": "2"}], [_ONE, {**_ONE, "value": "2"}]),
        ([_ONE], [{**_ONE, "effect": "NoExecute"}], [_ONE, {**_ONE, "effect": "NoExecute"}]),
    ],
)
def test_of_two_tolerations_the_one_that_covers_the_other_stays(
    first: list[Document], second: list[Document], expected: list[Document]
) -> None:
    assert merged(first, second) == expected
