"""What nodes are made of: Devices, from which koord-manager computes what the nodes have, and topologies."""

from __future__ import annotations

import json

import pytest

from koordinator.api.annotations import CPU_SHARED_POOLS, CPU_TOPOLOGY
from koordinator.api.codec import convert
from koordinator.api.device import Device
from koordinator.api.kinds import DEVICES, NODE_RESOURCE_TOPOLOGIES, NODES
from koordinator.api.labels import GPU_MODEL, GPU_VENDOR
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordinator.base.clock import ManualClock
from koordinator.base.errors import ConfigurationError
from koordinator.cluster.nodes.fleet import Fleet
from koordinator.cluster.nodes.main import main
from koordinator.cluster.nodes.scenario import Scenario, default_scenario, parse_scenario, scale, with_gpu_nodes
from koordinator.kube.errors import ApiStatusError
from tests.cluster.nodes.fleets import nothing, play
from tests.in_memory_api import ApiRequest, InMemoryApi


def scenario(gpu_nodes: int = 1) -> Scenario:
    return with_gpu_nodes(scale(default_scenario(), 1), gpu_nodes)


def device(api: InMemoryApi, name: str) -> Device:
    return convert(api.document(DEVICES, name), Device)


def test_a_node_has_its_gpus_in_its_device() -> None:
    api = play(nothing, scenario=scenario())
    assert (api.names(DEVICES), api.names(NODES)) == (["gpu-0"], ["gpu-0", "small-0"])
    found = device(api, "gpu-0")
    assert [each.minor for each in found.spec.devices] == list(range(8))
    amounts = {name: str(amount) for name, amount in found.spec.devices[0].resources.items()}
    assert amounts == {GPU_CORE: "100", GPU_MEMORY: "80Gi", GPU_MEMORY_RATIO: "100"}
    assert (found.metadata.labels[GPU_VENDOR], found.metadata.labels[GPU_MODEL]) == ("nvidia", "A100-SXM4-80GB")
    (owner,) = found.metadata.owner_references
    assert owner.uid == api.document(NODES, "gpu-0")["metadata"]["uid"]


def test_the_node_has_what_the_device_plugin_of_the_vendor_has() -> None:
    api = play(nothing, scenario=scenario())
    status = api.document(NODES, "gpu-0")["status"]
    assert (status["capacity"]["nvidia.com/gpu"], status["allocatable"]["nvidia.com/gpu"]) == ("8", "8")
    assert "nvidia.com/gpu" not in api.document(NODES, "small-0")["status"]["capacity"]


def test_gpus_of_one_switch_are_told_apart_and_all_are_on_one_numa_node() -> None:
    devices = device(play(nothing, scenario=scenario()), "gpu-0").spec.devices
    places = [each.topology for each in devices if each.topology is not None]
    assert len({place.bus_id for place in places}) == len({each.id for each in devices}) == 8
    assert (len({place.pcie_id for place in places}), {place.node_id for place in places}) == (4, {0})


def test_a_second_start_changes_nothing() -> None:
    api = play(nothing, scenario=scenario())
    before = api.document(DEVICES, "gpu-0")
    assert play(nothing, api, scenario()).document(DEVICES, "gpu-0") == before


def test_the_device_of_an_earlier_node_of_that_name_is_replaced() -> None:
    api = play(nothing, scenario=scenario())
    before = api.document(DEVICES, "gpu-0")
    api.put(DEVICES, {**before, "metadata": {**before["metadata"], "ownerReferences": []}})
    after = play(nothing, api, scenario()).document(DEVICES, "gpu-0")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert (after["spec"], len(after["metadata"]["ownerReferences"])) == (before["spec"], 1)


def test_a_garbage_collector_may_remove_the_earlier_device_first() -> None:
    api = play(nothing, scenario=scenario())
    before = api.document(DEVICES, "gpu-0")
    api.put(DEVICES, {**before, "metadata": {**before["metadata"], "ownerReferences": []}})

    def gone(request: ApiRequest, done: bool) -> Exception | None:
        is_it = request == ApiRequest("delete", "devices", "gpu-0") and done
        return ApiStatusError(404, "NotFound", "gone") if is_it else None

    api.fault = gone
    after = play(nothing, api, scenario()).document(DEVICES, "gpu-0")
    assert len(after["metadata"]["ownerReferences"]) == 1


def test_every_node_has_its_cpus_described_before_its_first_pod() -> None:
    api = play(nothing, scenario=scenario())
    found = convert(api.document(NODE_RESOURCE_TOPOLOGIES, "small-0"), NodeResourceTopology)
    cores = round(float(api.document(NODES, "small-0")["status"]["capacity"]["cpu"]))
    assert len(json.loads(found.metadata.annotations[CPU_TOPOLOGY])["detail"]) == cores
    assert [zone.name for zone in found.zones] == ["node-0"]
    (owner,) = found.metadata.owner_references
    assert owner.uid == api.document(NODES, "small-0")["metadata"]["uid"]
    assert "gpu-0" in api.names(NODE_RESOURCE_TOPOLOGIES)


def test_what_koordlet_has_written_of_the_cpus_stays_at_a_second_start() -> None:
    api = play(nothing, scenario=scenario())
    before = api.document(NODE_RESOURCE_TOPOLOGIES, "small-0")
    before["metadata"]["annotations"][CPU_SHARED_POOLS] = "[]"
    api.put(NODE_RESOURCE_TOPOLOGIES, before)
    after = play(nothing, api, scenario()).document(NODE_RESOURCE_TOPOLOGIES, "small-0")
    assert after["metadata"]["annotations"][CPU_SHARED_POOLS] == "[]"


def test_a_node_that_has_got_other_cpus_is_described_anew() -> None:
    api = play(nothing, scenario=scenario())
    before = api.document(NODE_RESOURCE_TOPOLOGIES, "small-0")
    one_cpu = {"detail": [{"id": 0, "core": 0, "socket": 0, "node": 0}]}
    smaller = {**before["metadata"]["annotations"], CPU_TOPOLOGY: json.dumps(one_cpu)}
    api.put(NODE_RESOURCE_TOPOLOGIES, {**before, "metadata": {**before["metadata"], "annotations": smaller}})
    after = play(nothing, api, scenario()).document(NODE_RESOURCE_TOPOLOGIES, "small-0")
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]


def test_a_topology_that_is_refused_or_unreadable_costs_its_node_alone(caplog: pytest.LogCaptureFixture) -> None:
    api = play(nothing, scenario=scenario())
    before = api.document(NODE_RESOURCE_TOPOLOGIES, "small-0")
    before["metadata"]["annotations"][CPU_TOPOLOGY] = "{bad"
    api.put(NODE_RESOURCE_TOPOLOGIES, before)
    api.remove(NODE_RESOURCE_TOPOLOGIES, "gpu-0")

    def refused(request: ApiRequest, done: bool) -> Exception | None:
        is_it = request == ApiRequest("create", NODE_RESOURCE_TOPOLOGIES.plural, "gpu-0") and not done
        return ApiStatusError(403, "Forbidden", "not this one") if is_it else None

    api.fault = refused
    after = play(nothing, api, scenario()).document(NODE_RESOURCE_TOPOLOGIES, "small-0")
    assert "detail" in json.loads(after["metadata"]["annotations"][CPU_TOPOLOGY])
    assert "the NodeResourceTopology of gpu-0 is refused: not this one" in caplog.text


def test_without_the_definition_nodes_have_no_gpus_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    api = InMemoryApi()

    def absent(request: ApiRequest, done: bool) -> Exception | None:
        is_about_devices = request.plural == "devices" and not done
        return ApiStatusError(404, "NotFound", "the server could not find it") if is_about_devices else None

    api.fault = absent
    play(nothing, api, scenario())
    assert api.names(NODES) == ["gpu-0", "small-0"]
    assert "no CustomResourceDefinition devices.scheduling.koordinator.sh" in caplog.text


def test_a_server_that_is_not_well_is_waited_for() -> None:
    api, failures = InMemoryApi(), [ApiStatusError(503, "ServiceUnavailable", "later")] * 3

    def fail(request: ApiRequest, done: bool) -> Exception | None:
        return failures.pop() if request.plural == "devices" and not done and failures else None

    api.fault = fail

    async def a_while(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        await clock.advance(10)

    assert play(a_while, api, scenario()).names(DEVICES) == ["gpu-0"]
    assert failures == []


@pytest.mark.parametrize(
    ("gpus", "field"),
    [
        ("{count: -1}", "count"),
        ("{count: 65}", "count"),
        ("{count: 1, memory: '0'}", "memory"),
        ("{cuont: 1}", "cuont"),
    ],
)
def test_gpus_that_cannot_be_are_refused(gpus: str, field: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"nodeGroups\[0\]\.gpus\.{field}"):
        parse_scenario(f"nodeGroups: [{{name: a, gpus: {gpus}}}]", "test.yaml")


def test_a_group_of_the_name_that_nodes_with_gpus_have_is_refused(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path_factory.mktemp("scenario") / "scenario.yaml"
    file.write_text("nodeGroups: [{name: gpu}]")
    assert main([f"--scenario={file}", "--gpu-nodes=1", "--kubeconfig=absent"]) == 1
    assert "each group needs a name of its own" in capsys.readouterr().err


def test_fewer_than_no_nodes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--gpu-nodes=-1"]) == 1
    assert "--gpu-nodes: -1" in capsys.readouterr().err
