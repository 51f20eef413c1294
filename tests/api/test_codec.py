from __future__ import annotations

import subprocess
import sys

import pytest

from koordinator.api.codec import DecodeError, decode, decode_any, decoder, encode
from koordinator.api.duration import GoDuration
from koordinator.api.nodemetric import AggregatePolicy, NodeMetric
from koordinator.api.pod import Pod
from koordinator.api.quantity import Quantity
from koordinator.api.resource_threshold import ResourceThresholdStrategy
from koordinator.api.system_strategy import SystemStrategy


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"spec":{"containers":[{"resources":{"requests":{"cpu":"1x"}}}]}}', "$.spec.containers[0]"),
        (b'{"spec":{"priority":"high"}}', "$.spec.priority"),
        (b'{"spec":[]}', "$.spec"),
        (b'{"metadata":{"creationTimestamp":"yesterday"}}', "$.metadata.creationTimestamp"),
        (b"[]", "Expected `object`"),
        (b"{", "not JSON"),
        (b'{"kind":"\xff"}', "not JSON"),
    ],
)
def test_malformed_json_is_an_error_that_names_the_place(body: bytes, detail: str) -> None:
    with pytest.raises(DecodeError) as raised:
        decode(body, Pod)
    assert detail in str(raised.value)


@pytest.mark.parametrize("body", [b'{"spec":{"priority":"high"}}', b"{", b'{"kind":"\xff"}'])
def test_a_decoder_of_one_type_fails_as_any_decoding_does(body: bytes) -> None:
    with pytest.raises(DecodeError) as reported:
        decode(body, Pod)
    with pytest.raises(DecodeError) as raised:
        decoder(Pod)(body)
    assert str(raised.value) == str(reported.value)


def test_a_decoder_of_one_type_takes_nulls_as_unset() -> None:
    assert decoder(Pod)(b'{"metadata":{"labels":null},"status":null}') == Pod()


@pytest.mark.parametrize("duration", ['"5"', '"five minutes"', "300", '"99999999999h"'])
def test_a_malformed_duration_is_an_error_that_names_the_place(duration: str) -> None:
    body = f'{{"spec":{{"metricCollectPolicy":{{"nodeAggregatePolicy":{{"durations":[{duration}]}}}}}}}}'
    with pytest.raises(DecodeError, match=r"durations\[0\]"):
        decode(body, NodeMetric)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Pod, '{{"spec":{{"containers":[{{"resources":{{"requests":{{"cpu":{0}}}}}}}]}}}}'),
        (AggregatePolicy, '{{"durations":[{0}]}}'),
    ],
)
def test_what_stands_in_the_place_of_a_text_is_not_repeated_at_length(kind: type, body: str) -> None:
    with pytest.raises(DecodeError, match=r"expected .*, got an object - at") as raised:
        decode(body.format('{"a":"%s"}' % ("x" * 100_000)).encode(), kind)
    assert len(str(raised.value)) < 200


def test_nulls_count_as_unset() -> None:
    body = b'{"metadata":{"labels":null},"spec":{"containers":[{"name":"a","env":null},null]},"status":null}'
    assert [container.name for container in decode(body, Pod).spec.containers] == ["a"]


def test_values_out_of_range_are_decoded() -> None:
    assert decode(b'{"cpuSuppressThresholdPercent":500}', ResourceThresholdStrategy) == ResourceThresholdStrategy(
        cpu_suppress_threshold_percent=500
    )


@pytest.mark.parametrize("body", [b"{}", b'{"enable":false}', b'{"cpuSuppressMinPercent":0}'])
def test_unset_and_zero_stay_distinct(body: bytes) -> None:
    assert encode(decode(body, ResourceThresholdStrategy)) == body


def test_a_duration_is_written_in_gos_form() -> None:
    assert encode(AggregatePolicy(durations=[GoDuration.parse("90s")])) == b'{"durations":["1m30s"]}'


def test_a_quantity_that_is_no_pointer_is_written_when_zero() -> None:
    assert encode(SystemStrategy()) == b'{"totalNetworkBandwidth":"0"}'


def test_equal_quantities_are_shared() -> None:
    containers = decode_any(b'{"cpu":"500m"}')
    assert Quantity.parse(containers["cpu"]) is Quantity.parse("500m")


_TWO_THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import msgspec

from koordinator.api.codec import convert, decode, encode

DOCUMENT = {"inner": {"value": {"a": {"x": 1}}}}
barrier = Barrier(2)


def work(expected, number):
    barrier.wait()
    found = convert(DOCUMENT, expected) if number else decode(encode(DOCUMENT), expected)
    return found.inner.value["a"].x


sys.setswitchinterval(1e-6)
with ThreadPoolExecutor(2) as threads:
    for _ in range(100):
        leaf = msgspec.defstruct("Leaf", [("x", int)])
        inner = msgspec.defstruct("Inner", [("value", dict[str, leaf])])
        outer = msgspec.defstruct("Outer", [("inner", inner), ("more", list[inner] | None, None)])
        assert list(threads.map(work, [outer] * 2, range(2))) == [1, 1]
"""


def test_two_threads_may_be_the_first_to_decode_a_type() -> None:
    """In a process of its own, which would crash."""
    ended = subprocess.run([sys.executable, "-c", _TWO_THREADS], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_time_without_an_offset_is_refused() -> None:
    """It could not be compared with any other."""
    with pytest.raises(DecodeError, match=r"timezone.*\$\.metadata\.creationTimestamp"):
        decode(b'{"metadata": {"creationTimestamp": "2026-01-01T00:00:00"}}', Pod)
