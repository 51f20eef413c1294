"""Which records of modifications are taken from Events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from koordinator.api.codec import DecodeError
from koordinator.api.meta import ObjectMeta, ObjectReference
from koordinator.api.modification import (
    EVICTED,
    LONGEST_RECORD,
    MOST_PODS,
    Cause,
    Modification,
    complete,
    decode_record,
    event_metadata,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POD = ObjectReference(kind="Pod", namespace="shop", name="web", uid="u1")
RECORD = complete(Modification(action=EVICTED, node="n1"), "koordlet", POD, "for memory", NOW)


def event(record: Modification, namespace: str = "shop") -> ObjectMeta:
    labels, annotations = event_metadata(record)
    return ObjectMeta(name="web.1", namespace=namespace, labels=labels, annotations=annotations)


def test_a_record_is_read_as_it_was_written() -> None:
    assert decode_record(event(RECORD)) == RECORD
    assert RECORD.cause == Cause(text="for memory")


def test_a_program_writes_no_record_that_is_refused_for_its_length() -> None:
    pods = [f"shop/{'w' * 250}-{number}" for number in range(MOST_PODS)]
    for text in ("x" * 2000, "\x01" * 2000):
        wordy = Modification(action=EVICTED, cause=Cause(code=text, text=text), pods=pods)
        kept = decode_record(event(complete(wordy, "koordlet", POD, "", NOW)))
        assert kept.pods == pods[: len(kept.pods)]
        assert kept.cause.text == text[: len(kept.cause.text)] != ""


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"action": "invented"}, "action: 'invented' is not evicted or"),
        ({"outcome": "perhaps"}, "outcome: 'perhaps' is not done or failed"),
        ({"pods": ["bank/db"]}, "pods: at most 30 of the namespace shop"),
        ({"pods": ["shop/a"] * (MOST_PODS + 1)}, "pods: at most 30"),
        ({"time": None}, "time and object.name are needed"),
        ({"actor": "x" * LONGEST_RECORD}, "at most 8192 are kept"),
    ],
)
def test_a_record_that_cannot_be_taken_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        decode_record(event(replace(RECORD, **changes)))


def test_an_event_speaks_of_its_own_namespace_only() -> None:
    with pytest.raises(DecodeError, match=r"object.namespace: 'shop' is not other"):
        decode_record(event(RECORD, "other"))
