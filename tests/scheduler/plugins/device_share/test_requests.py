"""What may be requested of devices together, and what it comes to for each of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.scheduler.plugins.device_share.demand import TYPE_OF, RequestError, device_requests, per_gpu

_DOMAIN = "koordinator.sh/"


def full(amounts: dict[str, int]) -> dict[str, int]:
    return {name if "/" in name else _DOMAIN + name: amount for name, amount in amounts.items()}


def short(amounts: dict[str, int]) -> dict[str, int]:
    return {name.removeprefix(_DOMAIN): amount for name, amount in amounts.items()}


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu"])
def test_cards_of_vendors_are_whole_gpus(name: str) -> None:
    assert short(device_requests({name: 2})["gpu"]) == {"gpu-core": 200, "gpu-memory-ratio": 200}


@pytest.mark.parametrize(
    "amounts",
    [
        {"gpu-memory": 2**30},
        {"gpu-memory-ratio": 30},
        {"gpu-core": 30, "gpu-memory": 2**30},
        {"gpu-core": 200, "gpu-memory-ratio": 200},
        {"huawei.com/npu-core": 4, "gpu-memory-ratio": 100},
        {"gpu.shared": 2, "gpu-memory": 2**30},
        {"gpu.shared": 2, "gpu-memory-ratio": 200},
        {"gpu.shared": 2, "gpu-core": 10, "gpu-memory": 2**30},
        {"gpu.shared": 2, "gpu-core": 10, "gpu-memory-ratio": 10},
        {"gpu.shared": 1, "huawei.com/npu-core": 4, "huawei.com/npu-cpu": 1, "gpu-memory": 2**30},
        {
            "gpu.shared": 1,
            "huawei.com/npu-core": 4,
            "huawei.com/npu-cpu": 1,
            "huawei.com/npu-dvpp": 100,
            "gpu-memory": 2**30,
        },
    ],
)
def test_what_goes_together_stays_as_it_is(amounts: dict[str, int]) -> None:
    assert device_requests(full(amounts)) == {"gpu": full(amounts)}


@pytest.mark.parametrize("name", ["rdma", "fpga"])
@pytest.mark.parametrize("amount", [1, 100, 300])
def test_cards_are_requested_by_percent(name: str, amount: int) -> None:
    assert device_requests({_DOMAIN + name: amount}) == {name: {_DOMAIN + name: amount}}


@pytest.mark.parametrize(
    ("amounts", "text"),
    [
        ({"gpu": 150}, "invalid resource unit koordinator.sh/gpu: 150"),
        ({"rdma": 101}, "invalid resource unit koordinator.sh/rdma: 101"),
        ({"fpga": 199}, "invalid resource unit koordinator.sh/fpga: 199"),
        ({"gpu-core": 100}, "invalid resource device requests: [koordinator.sh/gpu-core]"),
        ({"gpu.shared": 2}, "invalid resource device requests: [koordinator.sh/gpu.shared]"),
        (
            {"nvidia.com/gpu": 1, "gpu": 100},
            "invalid resource device requests: [koordinator.sh/gpu nvidia.com/gpu]",
        ),
        (
            {"gpu-core": 150, "gpu-memory-ratio": 150},
            "invalid resource device requests: [koordinator.sh/gpu-core koordinator.sh/gpu-memory-ratio]",
        ),
        (
            {"gpu.shared": 2, "gpu-memory-ratio": 101},
            "invalid resource device requests: [koordinator.sh/gpu-memory-ratio koordinator.sh/gpu.shared]",
        ),
        (
            {"gpu.shared": 1, "gpu-memory-ratio": 200},
            "invalid resource device requests: [koordinator.sh/gpu-memory-ratio koordinator.sh/gpu.shared]",
        ),
    ],
)
def test_what_does_not_go_together_is_named(amounts: dict[str, int], text: str) -> None:
    with pytest.raises(RequestError) as caught:
        device_requests(full(amounts))
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("amounts", "count", "each", "is_shared"),
    [
        ({"gpu-core": 100, "gpu-memory-ratio": 100}, 1, {"gpu-core": 100, "gpu-memory-ratio": 100}, False),
        ({"gpu-core": 400, "gpu-memory-ratio": 400}, 4, {"gpu-core": 100, "gpu-memory-ratio": 100}, False),
        ({"gpu-core": 30, "gpu-memory-ratio": 30}, 1, {"gpu-core": 30, "gpu-memory-ratio": 30}, True),
        ({"gpu-memory": 6}, 1, {"gpu-memory": 6}, True),
        ({"gpu.shared": 2, "gpu-memory": 7}, 2, {"gpu-memory": 3}, True),
        ({"gpu.shared": 2, "gpu-core": 50, "gpu-memory-ratio": 100}, 2, {"gpu-core": 25, "gpu-memory-ratio": 50}, True),
        ({"gpu.shared": 2, "gpu-memory-ratio": 200}, 2, {"gpu-memory-ratio": 100}, False),
    ],
)
def test_a_request_comes_to_so_much_of_each_gpu(
    amounts: dict[str, int], count: int, each: dict[str, int], is_shared: bool
) -> None:
    found = per_gpu(full(amounts))
    assert (found.count, short(dict(found.amounts)), found.is_shared) == (count, each, is_shared)


@given(st.dictionaries(st.sampled_from(sorted(TYPE_OF)), st.integers(0, 500), max_size=4))
def test_what_is_accepted_is_never_more_than_is_requested_of_all_gpus(requested: dict[str, int]) -> None:
    try:
        found = device_requests(requested)
    except RequestError:
        return
    if "gpu" in found:
        of_each = per_gpu(found["gpu"])
        assert all(amount * of_each.count <= found["gpu"][name] for name, amount in of_each.amounts)
