"""What a node offers after amplification: the cases of the original's own tests, its rounding, and what must hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import DecodeError
from koordinator.api.document import Document, copied
from koordinator.manager.webhook.admission import ALLOWED, AdmissionRequest
from koordinator.manager.webhook.node.status_mutating import AmplificationError, NodeStatusMutatingHandler
from tests.manager.webhook.node.node_reviews import RATIO, RAW, about, node

HANDLER = NodeStatusMutatingHandler()


def with_annotations(annotations: dict[str, str], **allocatable: str) -> Document:
    made = node(allocatable=allocatable)
    made["metadata"]["annotations"] = annotations
    return made


def after(new: Document, old: Document | None = None) -> Document:
    """What is stored."""
    response = HANDLER.handle(about(new, old if old is not None else new, sub_resource="status"))
    assert response.allowed
    return new if response.changed is None else response.changed


def offered(stored: Document) -> tuple[dict[str, str], dict[str, str] | None]:
    """Allocatable, and what the node remembers that it has."""
    raw = stored["metadata"]["annotations"].get(RAW)
    return stored["status"]["allocatable"], json.loads(raw) if raw is not None else None


@pytest.mark.parametrize(
    ("annotations", "cpu", "raw"),
    [
        ({RATIO: '{"cpu": 1.5}'}, "1500m", "1"),
        ({RATIO: '{"cpu": 0.5}'}, "1", "1"),
        ({RATIO: '{"cpu": 1}'}, "1", "1"),
        ({RAW: "{}"}, "1", None),
        ({RATIO: "", RAW: '{"cpu":"1"}'}, "1", None),
        ({RATIO: '{"eni": 2}'}, "1", "1"),
        ({RATIO: '{"cpu": 2}', RAW: '{"cpu":"1"}'}, "2", "1"),
        ({RATIO: '{"cpu": null}'}, "1", "1"),
        ({RATIO: "{}"}, "1", "1"),
        ({RATIO: "null"}, "1", "1"),
        ({}, "1", None),
    ],
)
def test_one_cpu(annotations: dict[str, str], cpu: str, raw: str | None) -> None:
    assert offered(after(with_annotations(annotations, cpu="1"))) == (
        {"cpu": cpu},
        None if raw is None else {"cpu": raw},
    )


@pytest.mark.parametrize(
    ("old", "new", "kubelets"),
    [
        ({"cpu": "4", "memory": "8Gi"}, {"cpu": "4", "memory": "8Gi"}, False),
        ({"cpu": "4"}, {"cpu": "4", "memory": "8Gi"}, True),
        ({"cpu": "4", "memory": "8Gi"}, {"cpu": "4"}, True),
        ({"cpu": "4", "memory": "8Gi"}, {"cpu": "5", "memory": "8Gi"}, True),
        ({"cpu": "4", "ephemeral-storage": "80"}, {"cpu": "4", "ephemeral-storage": "100"}, False),
        ({"cpu": "4"}, {"cpu": "4000m"}, False),
    ],
)
def test_an_update_of_cpu_or_memory_is_what_the_node_has(
    old: dict[str, str], new: dict[str, str], kubelets: bool
) -> None:
    annotations = {RATIO: '{"cpu":2}', RAW: '{"cpu":"1"}'}
    _, raw = offered(after(with_annotations(annotations, **new), with_annotations(annotations, **old)))
    has = {name: text for name, text in new.items() if name in ("cpu", "memory")}
    assert raw == (has if kubelets else {"cpu": "1"})


def test_both_resources_and_nothing_else() -> None:
    ratio = {RATIO: '{"cpu":1.50,"memory":1.20,"ephemeral-storage":3,"kubernetes.io/batch-cpu":2}'}
    sent = with_annotations(
        ratio, cpu="8", memory="10Gi", **{"ephemeral-storage": "1Ti", "kubernetes.io/batch-cpu": "5"}
    )
    allocatable, raw = offered(after(sent))
    assert allocatable == {
        "cpu": "12",
        "memory": "12Gi",
        "ephemeral-storage": "1Ti",
        "kubernetes.io/batch-cpu": "5",
    }
    assert raw == {"cpu": "8", "memory": "10Gi"}


def test_part_of_a_byte_is_rounded_up_and_part_of_a_milli_cpu_is_cut() -> None:
    allocatable, _ = offered(after(with_annotations({RATIO: '{"cpu":1.33,"memory":1.2}'}, cpu="1001m", memory="16Gi")))
    assert allocatable == {"cpu": "1331m", "memory": "20615843021"}


def test_a_node_that_is_said_to_have_nothing_is_left_alone() -> None:
    stored = after(with_annotations({RATIO: '{"cpu":2}', RAW: "null"}, cpu="1"))
    assert offered(stored) == ({"cpu": "1"}, None)


def test_what_the_node_has_is_remembered_also_where_it_reports_no_such_resource() -> None:
    annotations = {RATIO: '{"cpu":2}', RAW: '{"cpu":"3"}'}
    assert offered(after(with_annotations(annotations))) == ({"cpu": "6"}, {"cpu": "3"})


def test_a_node_that_reports_nothing_stays_as_it_is() -> None:
    silent = node()
    silent["metadata"]["annotations"] = {RATIO: '{"cpu":2}'}
    assert HANDLER.handle(about(silent, silent, sub_resource="status")) is ALLOWED


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({RATIO: "twice"}, "failed to unmarshal node resource amplification ratio: annotation .*'twice'"),
        ({RATIO: '{"cpu":"2"}'}, "resource-amplification-ratio"),
        ({RATIO: '{"cpu":2}', RAW: "[]"}, "failed to unmarshal node raw allocatable: annotation .*raw-allocatable"),
        ({RATIO: '{"cpu":2}', RAW: '{"cpu":"much"}'}, "raw-allocatable"),
    ],
)
def test_annotations_that_cannot_be_read_are_named(annotations: dict[str, str], text: str) -> None:
    with pytest.raises(AmplificationError, match=text):
        after(with_annotations(annotations, cpu="1"))


@pytest.mark.parametrize(
    "request_",
    [
        about(with_annotations({RATIO: '{"cpu":2}'}, cpu="1"), operation="CREATE", sub_resource="status"),
        about(with_annotations({RATIO: '{"cpu":2}'}, cpu="1")),
        AdmissionRequest("UPDATE", "", "v1", "pods", "status", object=with_annotations({RATIO: '{"cpu":2}'}, cpu="1")),
    ],
)
def test_other_requests_pass(request_: AdmissionRequest) -> None:
    assert HANDLER.handle(request_) is ALLOWED


def test_a_question_without_a_node_cannot_be_answered() -> None:
    with pytest.raises(DecodeError, match="no content"):
        HANDLER.handle(about({}, sub_resource="status"))


amounts = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.integers(0, 512_000).map("{}m".format),
        "memory": st.sampled_from(["0", "1", "8Gi", "16393244Ki", "12345678901", "1e3", "1Pi"]),
        "pods": st.just("110"),
    },
)
ratios = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods"]), st.floats(-1, 10, allow_nan=False).map(lambda ratio: round(ratio, 2))
).map(json.dumps)


@given(amounts, amounts, ratios)
def test_storing_what_was_stored_changes_nothing(old: dict[str, str], new: dict[str, str], ratio: str) -> None:
    stored = after(with_annotations({RATIO: ratio}, **new), with_annotations({RATIO: ratio}, **old))
    assert after(copied(stored), stored) == stored


@given(amounts, amounts, ratios)
def test_what_is_unknown_survives_and_what_was_queried_about_stays(
    old: dict[str, str], new: dict[str, str], ratio: str
) -> None:
    before, sent = with_annotations({RATIO: ratio}, **old), with_annotations({RATIO: ratio}, **new)
    untouched = copied((before, sent))
    stored = copied(after(sent, before))
    assert (before, sent) == untouched
    stored["status"]["allocatable"] = sent["status"]["allocatable"]
    stored["metadata"]["annotations"].pop(RAW, None)
    assert stored == sent


@given(amounts, ratios)
def test_a_node_never_offers_less_than_it_has(new: dict[str, str], ratio: str) -> None:
    stored = after(with_annotations({RATIO: ratio}, **new))
    without_ratio = copied(stored)
    del without_ratio["metadata"]["annotations"][RATIO]
    assert RAW not in after(without_ratio)["metadata"]["annotations"]
    assert stored["status"]["allocatable"].keys() == new.keys()
