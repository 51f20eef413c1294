"""What labels, annotations and PodGroups say of a gang, and what counts where they say nonsense."""

from __future__ import annotations

import pytest

from koordinator.model.gang_declaration import (
    Declaration,
    Defaults,
    declared_by_pod,
    declared_by_pod_group,
    gang_id_of,
)
from tests.scheduler.fakes import make_pod
from tests.scheduler.plugins.coscheduling.gang_fakes import (
    GANG,
    POD_GROUP,
    gang_annotations,
    labelled,
    pod_group,
    with_annotations,
)

DEFAULTS = Defaults(wait_seconds=600.0, match_policy="once-satisfied")


def declared(minimum: int | str = 3, **annotations: str) -> Declaration | str:
    pod = with_annotations(make_pod("p"), gang_annotations("g", minimum, **annotations))
    return declared_by_pod(pod, "default/g", DEFAULTS)


def test_the_label_names_the_gang_before_the_annotation_does() -> None:
    pod = with_annotations(labelled("one", 0), {f"{GANG}/name": "other"})
    assert gang_id_of(pod) == "default/one"


def test_the_deprecated_label_names_the_gang() -> None:
    assert gang_id_of(make_pod("p", labels={f"{POD_GROUP}/name": "old"})) == "default/old"


def test_a_pod_that_says_nothing_is_in_no_gang() -> None:
    assert gang_id_of(make_pod("p", labels={POD_GROUP: ""})) == ""


def test_what_is_not_said_has_the_defaults() -> None:
    assert declared() == Declaration(3, 3, "Strict", "once-satisfied", 600.0, ("default/g",))


def test_all_that_is_said_counts() -> None:
    said = {"total_number": "5", "mode": "NonStrict", "match_policy": "only-waiting", "waiting_time": "90s"}
    assert declared(**said) == Declaration(3, 5, "NonStrict", "only-waiting", 90.0, ("default/g",))


def test_the_label_of_the_minimum_comes_first() -> None:
    pod = with_annotations(make_pod("p", labels={f"{POD_GROUP}/min-available": "7"}), gang_annotations("g", 3))
    found = declared_by_pod(pod, "default/g", DEFAULTS)
    assert isinstance(found, Declaration)
    assert found.min_member == 7


@pytest.mark.parametrize("minimum", ["", "three", "2147483648", "1.5", " 3", "٣"])
def test_without_a_number_nothing_is_declared(minimum: str) -> None:
    found = declared(minimum)
    assert found == f"{GANG}/min-available is {minimum!r}; expected is a number of pods"


@pytest.mark.parametrize(
    ("key", "value", "names"),
    [
        ("mode", "strict", "Strict or NonStrict; Strict counts"),
        ("match_policy", "never", "only-waiting or waiting-and-running or once-satisfied; once-satisfied counts"),
        ("waiting_time", "soon", "is not a duration"),
        ("waiting_time", "-5s", "negative; 600s counts"),
        ("total_number", "2", "not below the minimum 3"),
        ("total_number", "many", "not below the minimum 3"),
        ("groups", "default/g", "expected is a JSON list of namespace/name"),
        ("groups", '["default/h"]', "leaves out the gang itself, default/g"),
    ],
)
def test_a_bad_value_is_named_and_its_default_counts(key: str, value: str, names: str) -> None:
    found = declared(**{key: value})
    assert isinstance(found, Declaration)
    assert len(found.problems) == 1
    assert names in found.problems[0]
    assert (found.mode, found.match_policy, found.wait_seconds, found.total) == ("Strict", "once-satisfied", 600.0, 3)


def test_a_group_is_sorted_and_has_each_gang_once() -> None:
    found = declared(groups='["default/z", "default/g", "default/z"]')
    assert isinstance(found, Declaration)
    assert found.group_id == "default/g,default/z"


def test_a_pod_group_declares_its_gang() -> None:
    found = declared_by_pod_group(pod_group("g", 4, 30, mode="NonStrict"), DEFAULTS)
    assert found == Declaration(4, 4, "NonStrict", "once-satisfied", 30.0, ("default/g",))


@pytest.mark.parametrize("timeout", [None, 0, -1])
def test_a_pod_group_without_patience_has_the_default(timeout: int | None) -> None:
    assert declared_by_pod_group(pod_group("g", 1, timeout), DEFAULTS).wait_seconds == 600.0
