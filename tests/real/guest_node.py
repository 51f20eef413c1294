"""A real node in a virtual machine: containerd, a kubelet and koordlet on a kernel that has version 2 of cgroups alone.

Its API server is that of the test, on this machine: what it takes minutes to emulate is not emulated. The node is up
within a minute.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from tests.real.administrator import Administrator
from tests.real.control_plane import ControlPlane
from tests.real.guest_commands import LOGS
from tests.real.polling import until
from tests.real.real_node import REPOSITORY, EnforcedNode, node_script
from tests.real.virtual_machine import Booted, VirtualMachine, booted
from tests.real_world.kubelet_configurations import KubeletSettings

CGROUPS: Final = "/sys/fs/cgroup"
_FOLDER: Final = Path("/run/node")
_BOOTED: Final = 300.0
PATIENCE: Final = 480.0
"""Seconds that anything may take there: the machine is emulated, and others are beside it."""
_TOPS: Final = (f"{CGROUPS}/kubepods", f"{CGROUPS}/kubepods.slice")
_STEADY_SECONDS: Final = 4.0
_STEADY_RESPONSES: Final = 10
_UNKNOWN: Final = re.compile(r"\b[0-9a-f]{64}\b")
_SYSTEM_PATH: Final = "/usr/sbin:/sbin"


class GuestError(AssertionError):
    """What was asked of the virtual machine was not done."""


@dataclass
class Guest:
    """What a test asks the machine to do: see ``guest_commands``."""

    machine: Booted
    numbers: Iterator[int] = field(default_factory=count)

    def run(self, *command: str, seconds: float = PATIENCE, **variables: str) -> str:
        """What the program prints; GuestError where it fails."""
        done = self._ask("run", within=seconds, command=command, variables=variables, seconds=seconds)
        if done["status"]:
            raise GuestError(f"{shlex.join(command)} ended with {done['status']}:\n{done['output'][-6000:]}")
        return str(done["output"])

    def start(self, name: str, *command: str, **variables: str) -> None:
        """In the background, until it is told to ``end``; ``log`` has what it writes."""
        self._ask("start", name=name, command=command, variables=variables)

    def end(self, name: str) -> None:
        self._ask("end", name=name)

    def get(self, address: str) -> str:
        """What a server of the machine responds to an HTTP request."""
        return str(self._ask("get", address=address))

    def log(self, name: str) -> str:
        return self.files(str(LOGS), names=[name]).get(str(LOGS / name), "")

    def files(self, *folders: str, names: Sequence[str]) -> dict[str, str]:
        """Path -> content, without white space at the ends, of the files of these names in the folders and below."""
        found: dict[str, str] = self._ask("files", below=folders, names=names)
        return found

    def _ask(self, verb: str, *, within: float = PATIENCE, **arguments: Any) -> Any:
        number = next(self.numbers)
        written = self.machine.shared / f"{number}.asked"
        written.write_text(json.dumps([verb, arguments]))
        written.rename(self.machine.shared / f"{number}.request")
        response = self.machine.shared / f"{number}.response"
        deadline = time.monotonic() + within + (_BOOTED if number == 0 else 20)
        while not response.exists():
            if time.monotonic() > deadline or self.machine.process.poll() is not None:
                raise GuestError(f"no response to {verb} {arguments}; {self.machine.failure()}")
            time.sleep(0.02)
        document = json.loads(response.read_text())
        if "error" in document:
            raise GuestError(document["error"])
        return document["result"]


@dataclass
class GuestNode:
    """``node`` is what the API server shows of it."""

    guest: Guest
    node: EnforcedNode
    namespace: str
    names: dict[str, str] = field(default_factory=dict)
    """What the names of folders of pods and of their containers have in them -> what is shown instead."""

    @contextmanager
    def koordlet(self, *arguments: str) -> Iterator[None]:
        """Until it has looked at the node; its log is shown where something fails."""
        name = "koordlet"
        command = [*self.node.koordlet_command(Path("/run")), "--kubelet-sync-interval=1s", *arguments]
        self.guest.run("rm", "-f", str(LOGS / name))
        self.guest.start(name, *command, **self.node.koordlet_environment)
        try:
            until(lambda: "cgroup version" in self.guest.log(name), PATIENCE, "koordlet begins")
            until(self._has_topology, PATIENCE, "koordlet has looked at the node")
            yield
        except AssertionError as error:
            error.add_note(self.guest.log(name)[-6000:])
            raise
        finally:
            self.guest.end(name)

    def _has_topology(self) -> bool:
        path = f"/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/{self.node.name}"
        return self.node.administrator.request("GET", path)[0] == 200

    def show_slo(self, spec: Mapping[str, Any] | None) -> None:
        """The node's policy, or none."""
        if spec is None:
            self.node.kubectl("delete", "nodeslo", self.node.name, "--ignore-not-found")
        else:
            document = {"metadata": {"name": self.node.name}, "spec": dict(spec)}
            self.node.apply({"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", **document})

    def run_pods(self, *documents: Mapping[str, Any]) -> None:
        """All at once, until all run."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        for document in documents:
            status, response = self.node.administrator.request("POST", path, document)
            assert status == 201, response.get("message")
        until(lambda: len(self._running()) == len(documents), PATIENCE, "all pods run")
        for pod in self._running():
            name, uid = f"-{pod['metadata']['name']}", pod["metadata"]["uid"]
            self.names |= {uid: name, uid.replace("-", "_"): name}
            for status in pod["status"]["containerStatuses"]:
                self.names[status["containerID"].partition("://")[2]] = status["name"]

    def _running(self) -> list[dict[str, Any]]:
        pods = self.node.get("pods", namespace=self.namespace)["items"]
        return [pod for pod in pods if pod["status"].get("phase") == "Running"]

    def steady(self, *names: str, unlike: Mapping[str, str] | None = None) -> dict[str, str]:
        """``cgroups`` when they have not changed for a while, and are not what they were. Where the machine takes long
        to show them, it takes long to change them, too."""
        if unlike is not None:
            until(lambda: self.cgroups(*names) != unlike, PATIENCE, "the files change")
        seen, since, slowest = self.cgroups(*names), time.monotonic(), 0.0

        def is_steady() -> bool:
            nonlocal seen, since, slowest
            time.sleep(0.5)
            asked = time.monotonic()
            found = self.cgroups(*names)
            now = time.monotonic()
            slowest = max(slowest, now - asked)
            if found != seen:
                seen, since = found, now
            return now - since > max(_STEADY_SECONDS, _STEADY_RESPONSES * slowest)

        until(is_steady, PATIENCE, "the files are steady")
        return seen

    def cgroups(self, *names: str) -> dict[str, str]:
        """Folder and name below the root of cgroups -> content, of all pods and what is in them: the container ``main``
        of the pod ``a`` is ``kubepods/burstable/pod-a/main``, and what is not in a pod's status a ``sandbox``."""
        found = self.guest.files(*_TOPS, names=names)
        return {self._named(path.removeprefix(f"{CGROUPS}/")): content for path, content in found.items()}

    def _named(self, path: str) -> str:
        for identifier, name in self.names.items():
            path = path.replace(identifier, name)
        return _UNKNOWN.sub("sandbox", path)


@contextmanager
def guest_node(
    plane: ControlPlane,
    name: str,
    machine: VirtualMachine,
    settings: KubeletSettings,
) -> Iterator[GuestNode]:
    """Containers run by runc or crun, as the names of their pods say: see ``oci_switch.sh``."""
    script = node_script()
    administrator = Administrator.of(plane.kubeconfig)
    node = EnforcedNode(plane.kubeconfig, name, administrator)
    node.kubectl("apply", "-f", str(REPOSITORY / "config/crd"))
    node.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    with booted(machine, "tests.real.guest_commands", str(plane.port)) as there:
        guest = Guest(there)
        variables = {"NODE": name, "PATH": f"{os.environ['PATH']}:{_SYSTEM_PATH}"}
        variables |= {**settings.environment, "OCI": str(REPOSITORY / "tests/real/oci_switch.sh")}
        try:
            guest.run(str(script), "up", str(_FOLDER), str(plane.kubeconfig), seconds=PATIENCE, **variables)
            yield GuestNode(guest, node, name)
        finally:
            node.kubectl("delete", "pods", "--all", "--namespace", name, "--force", "--wait=false")
            # What one story has left would be shown to the next one, from its beginning.
            node.kubectl("delete", "node,nodeslo,noderesourcetopology", name, "--ignore-not-found")
            administrator.close()
