"""Pods as people have them, through the proxy as a kubelet starts, resizes and removes them; and garbage in them.

Hook servers have the policy Fail here: what the proxy makes of a pod must never be why it does not start.
"""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.kinds import PODS as POD_KIND
from koordinator.api.protobuf import cri_pb2 as cri
from koordinator.api.protobuf.runtime_hooks_pb2 import LinuxContainerResources, PodSandboxHookRequest
from koordinator.runtime_proxy.checkpoints import Checkpoints
from tests.real_world.broken_annotations import BROKEN_ANNOTATIONS
from tests.real_world.broken_documents import BrokenObject
from tests.real_world.garbage import FEW, TEXT
from tests.real_world.pods import PODS, PodShape, pod_shape
from tests.runtime_proxy import test_docker
from tests.runtime_proxy.fake_servers import FakeHookServer
from tests.runtime_proxy.kubelet_requests import KubeletPod
from tests.runtime_proxy.proxied import ALL_HOOKS, Proxied, proxied, run

FAIL = "Fail"
BROKEN_PODS = [broken for broken in BROKEN_ANNOTATIONS if broken.kind is POD_KIND]
OF_PODS = ("PreRunPodSandbox", "PostStopPodSandbox")
_NUMBERS = st.sampled_from((0, -1, 1, 2**31, 2**62, -(2**62), 2**63 - 1, -(2**63)))


class Kubelet:
    """Starts a pod through a proxy, and remembers what it has sent."""

    def __init__(self, proxy: Proxied, pod: KubeletPod) -> None:
        self._proxy = proxy
        self.pod = pod
        self.sandbox = ""
        self.containers: dict[str, str] = {}
        """Identifiers by name."""
        self.sent: list[tuple[str, Message]] = []

    async def start(self) -> None:
        response = await self.call("RunPodSandbox", self.pod.run())
        self.sandbox = cri.RunPodSandboxResponse.FromString(response).pod_sandbox_id
        for container in self.pod.containers():
            request = self.pod.create(container, self.sandbox)
            created = cri.CreateContainerResponse.FromString(await self.call("CreateContainer", request))
            self.containers[container["name"]] = created.container_id
            await self.call("StartContainer", cri.ContainerRequest(container_id=created.container_id))

    async def resize(self) -> None:
        for name, resources in self.pod.resizes().items():
            request = cri.UpdateContainerResourcesRequest(container_id=self.containers[name], linux=resources)
            await self.call("UpdateContainerResources", request)

    async def remove(self) -> None:
        for identifier in self.containers.values():
            await self.call("StopContainer", cri.ContainerRequest(container_id=identifier))
        await self.call("StopPodSandbox", cri.PodSandboxRequest(pod_sandbox_id=self.sandbox))
        for identifier in self.containers.values():
            await self.call("RemoveContainer", cri.ContainerRequest(container_id=identifier))
        await self.call("RemovePodSandbox", cri.PodSandboxRequest(pod_sandbox_id=self.sandbox))

    async def call(self, method: str, request: Message) -> bytes:
        self.sent.append((method, request))
        return await self._proxy.call(method, request)


def received(proxy: Proxied) -> list[tuple[str, bytes]]:
    """What the runtime got, but for what the proxy asked by itself."""
    return [(call.method.rpartition("/")[2], call.message) for call in proxy.runtime.received]


def normal(request: Message) -> bytes:
    """The same bytes for the same message, whatever the order of its maps; fields that are not known included."""
    return request.SerializeToString(deterministic=True)


@pytest.mark.parametrize("hooks", [(), ALL_HOOKS], ids=["without hooks", "hooks that change nothing"])
@pytest.mark.parametrize("shape", PODS, ids=lambda shape: shape.name)
def test_the_runtime_gets_what_the_kubelet_has_sent(shape: PodShape, hooks: tuple[str, ...]) -> None:
    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(), hooks=hooks, policy=FAIL):
            kubelet = Kubelet(proxy, KubeletPod.of_shape(shape))
            await kubelet.start()
            await kubelet.remove()
            got = received(proxy)
            assert [method for method, _ in got] == [method for method, _ in kubelet.sent]
            for (method, content), (_, request) in zip(got, kubelet.sent, strict=True):
                assert normal(type(request).FromString(content)) == normal(request), method

    run(scenario())


@pytest.mark.parametrize("shape", PODS, ids=lambda shape: shape.name)
def test_hooks_hear_of_the_pod_and_of_each_of_its_containers(shape: PodShape) -> None:
    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(), policy=FAIL) as server:
            kubelet = Kubelet(proxy, KubeletPod.of_shape(shape))
            await kubelet.start()
            await kubelet.remove()
            config, names = kubelet.pod.sandbox(), list(kubelet.containers)
            for hook in OF_PODS:
                (pod,) = server.requests(hook)
                assert (pod.pod_meta, pod.labels, pod.annotations) == (
                    config.metadata,
                    config.labels,
                    config.annotations,
                )
                assert (pod.cgroup_parent, pod.resources) == (kubelet.pod.parent, config.linux.resources)
                assert pod.HasField("overhead") == ("overhead" in shape.spec)
                assert pod.overhead == config.linux.overhead
            for hook in sorted({*ALL_HOOKS} - {*OF_PODS, "PreUpdateContainerResources"}):
                requests = server.requests(hook)
                assert [request.container_meta.name for request in requests] == names, hook
                for request, container in zip(requests, kubelet.pod.containers(), strict=True):
                    sent = kubelet.pod.create(container, kubelet.sandbox).config
                    assert request.container_resources == sent.linux.resources
                    assert request.container_annotations == sent.annotations
                    assert request.pod_resources == config.linux.resources
                    assert (request.pod_labels, request.pod_annotations) == (config.labels, config.annotations)
                    assert request.pod_cgroup_parent == kubelet.pod.parent

    run(scenario())


@pytest.mark.parametrize("shape", [shape for shape in PODS if shape.changes], ids=lambda shape: shape.name)
def test_a_resize_reaches_hook_and_runtime_with_what_stays(shape: PodShape) -> None:
    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(), policy=FAIL) as server:
            kubelet = Kubelet(proxy, KubeletPod.of_shape(shape))
            await kubelet.start()
            await kubelet.resize()
            wanted = kubelet.pod.resizes()
            updates = [
                cri.UpdateContainerResourcesRequest.FromString(m)
                for m in proxy.runtime.messages("UpdateContainerResources")
            ]
            assert [update.container_id for update in updates] == [kubelet.containers[name] for name in wanted]
            for update, resources in zip(updates, wanted.values(), strict=True):
                # The OOM score cannot change while a container runs: hooks get that of its start, the runtime, too.
                expected = LinuxContainerResources()
                expected.CopyFrom(resources)
                expected.oom_score_adj = _oom_score(kubelet, update.container_id)
                assert update.linux == expected
            assert [request.container_resources for request in server.requests("PreUpdateContainerResources")] == [
                update.linux for update in updates
            ]

    run(scenario())


def _oom_score(kubelet: Kubelet, identifier: str) -> int:
    return next(
        kubelet.pod.create(container, "").config.linux.resources.oom_score_adj
        for container in kubelet.pod.containers()
        if kubelet.containers[container["name"]] == identifier
    )


@pytest.mark.parametrize("shape", PODS, ids=lambda shape: shape.name)
def test_what_a_hook_changes_of_each_container_is_changed_and_nothing_else(shape: PodShape) -> None:
    def change(request: Any, response: Any) -> None:
        if hasattr(response, "container_resources"):
            response.container_resources.cpuset_cpus = "0-1"
            response.container_envs["NVIDIA_VISIBLE_DEVICES"] = "0"

    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(change), hooks=("PreCreateContainer",), policy=FAIL):
            kubelet = Kubelet(proxy, KubeletPod.of_shape(shape))
            await kubelet.start()
            created = [cri.CreateContainerRequest.FromString(m) for m in proxy.runtime.messages("CreateContainer")]
            for request, container in zip(created, kubelet.pod.containers(), strict=True):
                expected = kubelet.pod.create(container, kubelet.sandbox)
                expected.config.linux.resources.cpuset_cpus = "0-1"
                expected.config.envs.append(cri.KeyValue(key="NVIDIA_VISIBLE_DEVICES", value=b"0"))
                assert normal(request) == normal(expected)

    run(scenario())


@pytest.mark.parametrize("shape", PODS, ids=lambda shape: shape.name)
def test_each_shape_starts_in_docker_as_it_was_described(shape: PodShape) -> None:
    async def scenario() -> None:
        server = FakeHookServer()
        async with test_docker.proxied(server, FAIL) as proxy:
            pod = KubeletPod.of_shape(shape)
            await _start_in_docker(proxy, pod)
            assert [request.container_meta.name for request in server.requests("PreCreateContainer")] == [
                container["name"] for container in pod.containers()
            ]
            (asked,) = server.requests("PreRunPodSandbox")
            assert (asked.pod_meta.uid, asked.annotations) == (pod.uid, pod.sandbox().annotations)

    run(scenario())


async def _start_in_docker(proxy: test_docker.Proxied, pod: KubeletPod) -> None:
    """AssertionError unless docker gets what the kubelet has sent."""
    sandbox = pod.docker_sandbox()
    status, text = await proxy.create(sandbox, pod.docker_name("POD"))
    assert status == 201, text
    assert proxy.docker.body("create") == sandbox
    for container in pod.containers():
        body = pod.docker_container(container, "id1")
        status, text = await proxy.create(body, pod.docker_name(container["name"]))
        assert status == 201, text
        assert proxy.docker.body("create") == body


def _broken(broken: BrokenObject) -> KubeletPod:
    return KubeletPod(broken.copy(), "6f0f4a2e-5d3c-4a52-9d4f-0c6d3a1b2c3d")


@pytest.mark.parametrize("broken", BROKEN_PODS, ids=lambda broken: broken.name)
def test_a_broken_annotation_is_the_hooks_affair_and_outlives_a_restart(broken: BrokenObject) -> None:
    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(), policy=FAIL) as server:
            kubelet = Kubelet(proxy, _broken(broken))
            await kubelet.start()
            annotations = kubelet.pod.sandbox().annotations
            assert [request.annotations for request in server.requests("PreRunPodSandbox")] == [annotations]
            assert [request.pod_annotations for request in server.requests("PreCreateContainer")] == [annotations]
            for name in ("RunPodSandbox", "CreateContainer"):
                ((_, sent),) = ((method, request) for method, request in kubelet.sent if method == name)
                (got,) = proxy.runtime.messages(name)
                assert normal(type(sent).FromString(got)) == normal(sent)
            again = Checkpoints(proxy.folder / "kept")
            again.load()
            found = again.pods.get(kubelet.sandbox)
            assert found is not None
            assert found.annotations == annotations

    run(scenario())


@pytest.mark.parametrize("broken", BROKEN_PODS, ids=lambda broken: broken.name)
def test_a_broken_annotation_starts_in_docker(broken: BrokenObject) -> None:
    async def scenario() -> None:
        async with test_docker.proxied(FakeHookServer(), FAIL) as proxy:
            await _start_in_docker(proxy, _broken(broken))

    run(scenario())


_TEXTS = st.dictionaries(TEXT, TEXT, max_size=4)


@FEW
@given(_TEXTS, _TEXTS, st.lists(st.tuples(TEXT, st.binary(max_size=20)), max_size=4))
def test_garbage_in_a_pod_is_passed_on_as_it_is(
    labels: dict[str, str], annotations: dict[str, str], variables: list[tuple[str, bytes]]
) -> None:
    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(), policy=FAIL):
            shape = pod_shape("guaranteed")
            pod = KubeletPod.of_shape(shape)
            request = pod.run()
            request.config.labels.update(labels)
            request.config.annotations.update(annotations)
            sandbox = cri.RunPodSandboxResponse.FromString(await proxy.call("RunPodSandbox", request)).pod_sandbox_id
            (container,) = pod.containers()
            create = pod.create(container, sandbox)
            create.config.envs.extend(cri.KeyValue(key=key, value=value) for key, value in variables)
            create.config.annotations.update(annotations)
            await proxy.call("CreateContainer", create)
            (run_received,), (create_received,) = map(proxy.runtime.messages, ("RunPodSandbox", "CreateContainer"))
            assert normal(cri.RunPodSandboxRequest.FromString(run_received)) == normal(request)
            assert normal(cri.CreateContainerRequest.FromString(create_received)) == normal(create)

    run(scenario())


@FEW
@given(st.data())
def test_garbage_in_the_response_of_a_hook_starts_the_container_all_the_same(data: st.DataObject) -> None:
    numbers = {
        name: data.draw(_NUMBERS) for name in ("cpu_quota", "cpu_shares", "memory_limit_in_bytes", "oom_score_adj")
    }
    texts, sets = data.draw(_TEXTS), data.draw(TEXT)

    def change(request: Any, response: Any) -> None:
        if isinstance(request, PodSandboxHookRequest):
            response.annotations.update(texts)
            return
        for name, value in numbers.items():
            setattr(response.container_resources, name, value)
        response.container_resources.cpuset_cpus = sets
        response.container_envs.update(texts)

    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(FakeHookServer(change), policy=FAIL):
            kubelet = Kubelet(proxy, KubeletPod.of_shape(pod_shape("sidecar")))
            await kubelet.start()
            created = [cri.CreateContainerRequest.FromString(m) for m in proxy.runtime.messages("CreateContainer")]
            assert [request.config.metadata.name for request in created] == ["proxy", "main"]
            assert all(-1000 <= request.config.linux.resources.oom_score_adj <= 1000 for request in created)

    run(scenario())


class _Babbling(FakeHookServer):
    def __init__(self, content: bytes) -> None:
        super().__init__()
        self._content = content

    async def respond(self, method: str, message: bytes, context: Any) -> bytes:
        return self._content


@FEW
@given(st.binary(max_size=60))
def test_a_response_that_is_no_message_is_a_failed_hook(content: bytes) -> None:
    """With the policy Ignore the pod starts as the kubelet wants it, or with what can be read of the response."""

    async def scenario() -> None:
        async with proxied() as proxy, proxy.hooked(_Babbling(content)):
            kubelet = Kubelet(proxy, KubeletPod.of_shape(pod_shape("burstable")))
            await kubelet.start()
            assert [method for method, _ in received(proxy)] == ["RunPodSandbox", "CreateContainer", "StartContainer"]

    run(scenario())
