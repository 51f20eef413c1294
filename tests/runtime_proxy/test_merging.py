"""The rules by which responses change requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.protobuf import cri_pb2 as cri
from koordinator.api.protobuf.runtime_hooks_pb2 import (
    ContainerResourceHookRequest,
    ContainerResourceHookResponse,
    LinuxContainerResources,
    PodSandboxHookRequest,
)
from koordinator.runtime_proxy import merging

_FULL = LinuxContainerResources(
    cpu_period=1,
    cpu_quota=2,
    cpu_shares=3,
    memory_limit_in_bytes=4,
    oom_score_adj=5,
    cpuset_cpus="6",
    cpuset_mems="7",
    unified={"memory.max": "8"},
    memory_swap_limit_in_bytes=9,
)


def container(resources: LinuxContainerResources | None) -> ContainerResourceHookRequest:
    return ContainerResourceHookRequest(container_resources=resources)


def merged(response: LinuxContainerResources) -> LinuxContainerResources:
    stored = container(_FULL)
    merging.merge_container_response(stored, ContainerResourceHookResponse(container_resources=response))
    return stored.container_resources


def test_of_an_empty_response_only_the_score_and_the_cpusets_count() -> None:
    expected = LinuxContainerResources()
    expected.CopyFrom(_FULL)
    expected.oom_score_adj = 0
    expected.cpuset_cpus = expected.cpuset_mems = ""
    assert merged(LinuxContainerResources()) == expected


def test_a_score_out_of_range_is_ignored() -> None:
    assert merged(LinuxContainerResources(oom_score_adj=1001)).oom_score_adj == 5


def test_unified_settings_are_added() -> None:
    assert dict(merged(LinuxContainerResources(unified={"cpu.max": "1"})).unified) == {
        "memory.max": "8",
        "cpu.max": "1",
    }


def test_an_update_changes_what_it_names_but_never_the_score() -> None:
    stored = container(_FULL)
    merging.update_resources(stored, LinuxContainerResources(cpu_quota=-1, cpuset_cpus="0", oom_score_adj=7))
    expected = LinuxContainerResources()
    expected.CopyFrom(_FULL)
    expected.cpu_quota, expected.cpuset_cpus = -1, "0"
    assert stored.container_resources == expected


def test_resources_that_are_not_known_are_not_made_up() -> None:
    stored = container(None)
    merging.update_resources(stored, _FULL)
    merging.merge_container_response(stored, ContainerResourceHookResponse(container_resources=_FULL))
    assert not stored.HasField("container_resources")


def changed_environment(before: list[tuple[str, bytes]], wanted: dict[str, str]) -> list[tuple[str, bytes]]:
    request = cri.CreateContainerRequest()
    request.config.envs.extend([cri.KeyValue(key=key, value=value) for key, value in before])
    reported = merging.container_hook_request(request, PodSandboxHookRequest())
    reported.container_envs.clear()
    reported.container_envs.update(wanted)
    merging.change_create_request(request, reported)
    return [(env.key, env.value) for env in request.config.envs]


def test_variables_keep_their_place_new_ones_follow_sorted_and_others_go() -> None:
    before = [("Z", b"1"), ("A", b"\xff"), ("GONE", b"x"), ("B", b"2")]
    wanted = {"Z": "1", "A": "\ufffd", "B": "3", "N": "n", "M": "m"}
    assert changed_environment(before, wanted) == [("Z", b"1"), ("A", b"\xff"), ("B", b"3"), ("M", b"m"), ("N", b"n")]


@given(
    st.lists(st.tuples(st.sampled_from("ABC"), st.binary(max_size=3))),
    st.dictionaries(st.sampled_from("ABCD"), st.text(max_size=3)),
)
def test_a_container_gets_the_variables_that_the_hook_wants(
    before: list[tuple[str, bytes]], wanted: dict[str, str]
) -> None:
    got = {key: value.decode(errors="replace") for key, value in changed_environment(before, wanted)}
    assert got == wanted


@given(st.binary(max_size=20))
def test_a_changed_request_keeps_unknown_fields(unknown: bytes) -> None:
    field = b"\xba\x3e" + bytes((len(unknown),)) + unknown
    resources = LinuxContainerResources.FromString(_FULL.SerializeToString() + field)
    request = cri.CreateContainerRequest(
        config=cri.ContainerConfig(linux=cri.LinuxContainerConfig(resources=resources))
    )
    request = cri.CreateContainerRequest.FromString(request.SerializeToString() + field)
    reported = merging.container_hook_request(request, PodSandboxHookRequest())
    reported.container_resources.cpu_shares = 1024
    merging.change_create_request(request, reported)
    sent = request.SerializeToString()
    assert sent.count(field) == 2
    assert cri.CreateContainerRequest.FromString(sent).config.linux.resources.cpu_shares == 1024


def test_the_limits_of_huge_pages_are_left_as_they_are() -> None:
    update = cri.UpdateContainerResourcesRequest()
    update.linux.hugepage_limits.add(page_size="2MB", limit=1)
    merging.change_update_request(update, container(_FULL))
    assert [limit.page_size for limit in update.linux.hugepage_limits] == ["2MB"]
