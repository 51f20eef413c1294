"""koord-runtime-proxy before a real containerd: crictl's whole conversations, hooks, restarts of both."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.real.container_runtime import IMAGE, CriClient, ProxiedRuntime, proxied_runtime
from tests.real.hook_server_process import SHARES, VARIABLE
from tests.real.polling import until
from tests.real.programs import RealPrograms

_REPOSITORY = Path(__file__).resolve().parents[2]


class Node(ProxiedRuntime):
    def pod(self, name: str) -> tuple[str, str]:
        """A pod that runs; its id, and the file that describes it."""
        file = self.folder / f"{name}.json"
        description = {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "log_directory": str(self.folder),
            "labels": {"app": name},
            "linux": {
                "cgroup_parent": f"/koord-runtime-proxy-test/{name}",
                "security_context": {"namespace_options": {"network": 2}},
            },
        }
        file.write_text(json.dumps(description))
        return self.crictl("runp", str(file)), str(file)

    def container(self, pod: str, pod_file: str, name: str = "main") -> str:
        """A container that is created; its id."""
        file = self.folder / "container.json"
        description = {
            "metadata": {"name": name},
            "image": {"image": IMAGE},
            "envs": [{"key": "OWN", "value": "1"}],
            "log_path": f"{name}.log",
            "linux": {"resources": {"cpu_shares": 100}},
        }
        file.write_text(json.dumps(description))
        return self.crictl("create", pod, str(file), pod_file)

    def remove(self, pod: str) -> None:
        self.crictl("rmp", "--force", pod)


@pytest.fixture(scope="module")
def node(real_programs: RealPrograms) -> Iterator[Node]:
    with proxied_runtime(real_programs, lambda folder: ()) as started:
        yield Node(**vars(started))


@pytest.fixture
def hook_log(node: Node) -> Iterator[Path]:
    """A hook server that is registered for the test; what it received."""
    socket, log = node.folder / "hook.sock", node.folder / "hook.log"
    socket.unlink(missing_ok=True)
    log.write_text("")
    command = [sys.executable, "-m", "tests.real.hook_server_process", str(socket), str(log)]
    with subprocess.Popen(command, cwd=_REPOSITORY) as process:
        until(socket.exists, 30, "the hook server serves")
        registered, forgotten = _logged(node, "hook server a.json:"), _logged(node, "a.json is forgotten")
        node.proxy.register("a.json", socket, ("PreRunPodSandbox", "PreCreateContainer", "PreStartContainer"))
        until(lambda: _logged(node, "hook server a.json:") > registered, 10, "it is registered")
        yield log
        (node.proxy.hooks / "a.json").unlink()
        until(lambda: _logged(node, "a.json is forgotten") > forgotten, 10, "it is forgotten")
        process.terminate()


def _logged(node: Node, text: str) -> int:
    return node.proxy.log.read_text().count(text)


def _shares(pod: str, container: str) -> int:
    path = Path(f"/sys/fs/cgroup/cpu/koord-runtime-proxy-test/{pod}/{container}/cpu.shares")
    if not path.exists():
        pytest.skip("the hierarchy of cgroup v1 for CPU is not mounted here")
    return int(path.read_text())


def test_the_whole_life_of_a_pod(node: Node) -> None:
    pod, file = node.pod("life")
    container = node.container(pod, file)
    node.crictl("start", container)
    assert node.crictl("exec", container, "echo", "hello") == "hello"
    assert "OWN=1" in node.crictl("exec", "--sync", container, "env")
    assert [each["id"] for each in node.crictl.document("ps", "--pod", pod)["containers"]] == [container]
    assert _shares("life", container) == 100
    node.crictl("update", "--cpu-share", "200", container)
    assert _shares("life", container) == 200
    assert IMAGE in json.dumps(node.crictl.document("images"))
    node.crictl("stop", "-t", "0", container)
    assert node.crictl.document("inspect", container)["status"]["state"] == "CONTAINER_EXITED"
    node.crictl("rm", container)
    node.crictl("stopp", pod)
    node.crictl("rmp", pod)
    assert node.crictl.document("pods")["items"] == []


def test_a_hook_changes_what_a_container_gets(node: Node, hook_log: Path) -> None:
    pod, file = node.pod("hooked")
    container = node.container(pod, file)
    node.crictl("start", container)
    assert _shares("hooked", container) == SHARES
    environment = node.crictl("exec", container, "env").splitlines()
    assert {"OWN=1", f"{VARIABLE}=yes"} <= set(environment)
    node.remove(pod)


def test_between_create_and_start_the_proxy_is_killed(node: Node, hook_log: Path) -> None:
    pod, file = node.pod("killed")
    container = node.container(pod, file)
    node.proxy.kill()
    node.proxy.start()
    node.crictl("start", container)
    assert hook_log.read_text().splitlines().count("ContainerResourceHookRequest killed") == 2
    assert _shares("killed", container) == SHARES
    node.remove(pod)


def test_the_checkpoints_are_lost_and_the_runtime_is_queried(node: Node, hook_log: Path) -> None:
    pod, file = node.pod("lost")
    container = node.container(pod, file)
    node.proxy.kill()
    shutil.rmtree(node.proxy.socket.parent / "checkpoints")
    node.proxy.start()
    node.crictl("start", container)
    assert hook_log.read_text().splitlines().count("ContainerResourceHookRequest lost") == 2
    node.remove(pod)


def test_containerd_restarts_and_the_proxy_goes_on(node: Node) -> None:
    pod, file = node.pod("restart")
    node.runtime.restart()
    container = node.container(pod, file)
    node.crictl("start", container)
    node.remove(pod)


def test_thirty_pods_while_the_proxy_is_killed(node: Node, hook_log: Path) -> None:
    """Those whose calls were cut off are tried again, as kubelet does; in the end all run with what the hook wants."""

    def run(number: int) -> tuple[str, str]:
        for _ in range(20):
            try:
                pod, file = node.pod(f"many-{number}")
                container = _create(node, number, pod, file)
                node.crictl("start", container)
            except AssertionError:
                until(node.proxy.socket.exists, 30, "the proxy is back")
                _clean(node, f"many-{number}")
            else:
                return f"many-{number}", container
        raise AssertionError(f"pod {number} never ran")

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(run, number) for number in range(30)]
        until(lambda: sum(each.done() for each in running) >= 8, 120, "the first pods run")
        node.proxy.kill()
        node.proxy.start()
        shares = [_shares(*each.result(180)) for each in running]
    assert shares == [SHARES] * 30
    node.crictl("rmp", "--all", "--force")


def _create(node: Node, number: int, pod: str, pod_file: str) -> str:
    file = node.folder / f"container-{number}.json"
    file.write_text(json.dumps({"metadata": {"name": "main"}, "image": {"image": IMAGE}, "linux": {"resources": {}}}))
    return node.crictl("create", pod, str(file), pod_file)


def _clean(node: Node, name: str) -> None:
    """Remove what an attempt that was cut off has left: the runtime keeps a name until its pod is removed."""
    direct = CriClient(node.programs.kubernetes / "crictl", node.runtime.socket)
    for pod in direct.document("pods", "--name", f"^{name}$")["items"]:
        direct("rmp", "--force", str(pod["id"]))
