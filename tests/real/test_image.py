"""The images of the Dockerfile: built, run, and rolled out to a real node by `koord manifests` and by the Helm chart.

What stands for something else: the official image of Python (see container_engine), the way from pods to the API server
(see pod_network), and kube-scheduler, for which a koord-scheduler places the pods of the installation itself.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

import koordinator
from images.programs import IMAGES, commands_of
from tests.real.container_engine import REGISTRY, ContainerEngine, container_engine
from tests.real.control_plane import ControlPlane
from tests.real.helm import helm_command, helm_program
from tests.real.installation import NAMESPACE, REPOSITORY, shell
from tests.real.migration_programs import running
from tests.real.node_pods import IMAGE as PAUSE
from tests.real.pod_network import pod_network
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.real_node import started_node
from tests.real.scheduler_configuration import write_configuration

pytestmark = pytest.mark.slow

_PROGRAMS: Final = ("koord-scheduler", "koord-manager", "koord-descheduler", "koordlet", "koord-device-daemon")
_NODE: Final = "rolled-out"
_SECONDS: Final = 120.0
_HOST_PATHS: Final = (Path("/etc/runtime/hookserver.d"), Path("/var/run/koordlet"))
"""Folders of the node that the DaemonSets create."""
_IMPORTS: Final = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(len(sys.modules))
"""
"""Imports a package with all its modules, and what these import."""
_INSTALLED: Final = """
import json
from importlib.metadata import distributions
print(json.dumps({each.name.lower().replace("_", "-"): each.version for each in distributions()}))
"""
_TOOLS: Final = ("sh", "bash", "pip", "apt-get", "dpkg", "gcc", "strip")
_LIBRARY_OF_DEBIAN: Final = "libc6"


def _tag(name: str) -> str:
    return f"{REGISTRY}/{name}:{koordinator.__version__}"


@pytest.fixture(scope="module")
def engine() -> Iterator[ContainerEngine]:
    """With all images."""
    with container_engine() as running_engine:
        running_engine.build()
        yield running_engine


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_has_its_programs_and_nothing_else_that_can_be_run(name: str, engine: ContainerEngine) -> None:
    for command in commands_of(name):
        if command != "kubectl_complete-koord":
            # The original's manifests start it at the root.
            assert engine.run(_tag(name), f"/{command}", "--version").count(".") >= 2
    listed = "import os; print(*[e for d in os.environ['PATH'].split(':') if os.path.isdir(d) for e in os.listdir(d)])"
    runnable = set(engine.run(_tag(name), "python", "-c", listed).split())
    assert {each for each in runnable if not each.startswith("python")} == set(commands_of(name))
    assert not runnable & set(_TOOLS)


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_has_all_that_its_program_imports(name: str, engine: ContainerEngine) -> None:
    *_, package = IMAGES[name].packages or ("koordinator",)
    imported = package if package == "koordinator" else f"koordinator.{package}"
    assert int(engine.run(_tag(name), "python", "-c", _IMPORTS, imported)) > 100


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_says_what_it_is_and_is_root_only_where_it_works_on_the_node(
    name: str, engine: ContainerEngine
) -> None:
    settings = engine.settings(_tag(name))
    labels = {key.removeprefix("org.opencontainers.image."): text for key, text in settings["Labels"].items()}
    assert (labels["title"], labels["version"], labels["licenses"]) == (name, koordinator.__version__, "Apache-2.0")
    assert len(labels["revision"].removesuffix("-dirty")) == 40
    of_a_node = IMAGES[name].requirements == "node"
    assert settings["User"] == ("0:0" if of_a_node else "65532:65532")


@pytest.mark.parametrize("name", IMAGES)
def test_its_bill_of_materials_has_all_that_is_installed(name: str, engine: ContainerEngine) -> None:
    bill = json.loads((engine.bills / f"{name}.cdx.json").read_text())
    listed = {each["name"].lower().replace("_", "-"): each for each in bill["components"]}
    installed = json.loads(engine.run(_tag(name), "python", "-c", _INSTALLED))
    assert installed.keys() >= {"koordinator", "msgspec"}
    for distribution, version in installed.items():
        component = listed[distribution]
        assert component["version"] == version
        assert component["purl"].startswith(("pkg:pypi/", "pkg:generic/koordinator@"))
        assert component["licenses"]
        (digest,) = component["hashes"]
        assert len(digest["content"]) == 64
    # The hash is that of the lock.
    locked = (REPOSITORY / f"requirements/{IMAGES[name].requirements}.txt").read_text()
    assert f"sha256:{listed['msgspec']['hashes'][0]['content']}" in locked
    records = "import os; print(*os.listdir('/var/lib/dpkg/status.d'))"
    packages = engine.run(_tag(name), "python", "-c", records).split()
    assert {_LIBRARY_OF_DEBIAN, *packages} <= {each["name"] for each in listed.values() if each["licenses"]}


@dataclass(frozen=True)
class RolledOut:
    """A cluster of one real node, whose containerd has the images."""

    plane: ControlPlane

    def run(self, command: str) -> None:
        """A command line, in which $HELM is that program. It fails with what the pods are doing."""
        if "$HELM" in command:
            helm = helm_command(helm_program(), self.plane.kubeconfig.parent / "helm")
            command = command.replace("$HELM", helm)
        with self._explained():
            shell(command, self.plane.kubeconfig)

    def apply(self, document: dict[str, Any]) -> None:
        self.run(f"kubectl apply -f - <<< {shlex.quote(json.dumps(document))}")

    def eventually(self, holds: Callable[[], object], what: str) -> None:
        with self._explained():
            until(holds, _SECONDS, what)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (AssertionError, subprocess.TimeoutExpired) as error:
            error.add_note(self.report())
            raise

    def batch_cpu(self) -> int:
        """In milli-CPU; -1 for none."""
        allocatable = self.get(f"/api/v1/nodes/{_NODE}")["status"]["allocatable"]
        return int(allocatable.get("kubernetes.io/batch-cpu", -1))

    def runs(self, pod: str) -> bool:
        return bool(self.get(f"/api/v1/namespaces/default/pods/{pod}")["status"]["phase"] == "Running")

    def get(self, path: str) -> dict[str, Any]:
        code, response = self.plane.request("GET", path)
        assert code == 200, response.get("message")
        return response

    def pods(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return items

    def logs(self) -> dict[str, str]:
        """What the programs have logged, by pod."""
        found: dict[str, str] = {}
        for pod in self.pods():
            metadata = pod["metadata"]
            folder = Path(f"/var/log/pods/{NAMESPACE}_{metadata['name']}_{metadata['uid']}")
            found[metadata["name"]] = "".join(log.read_text(errors="replace") for log in sorted(folder.glob("*/*.log")))
        return found

    def report(self) -> str:
        states = [json.dumps(pod["status"].get("containerStatuses", pod["status"])) for pod in self.pods()]
        return "\n".join([*states, *(f"{pod}: {log[-1500:]}" for pod, log in self.logs().items())])


@pytest.fixture(scope="module")
def cluster(
    engine: ContainerEngine, real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RolledOut]:
    folder = tmp_path_factory.mktemp("rolled-out")
    archive = folder / "images.tar"
    engine("save", "--output", str(archive), *map(_tag, _PROGRAMS))
    plane = ControlPlane(
        real_programs.kubernetes,
        folder / "cluster",
        authorization_mode="RBAC",
        disabled_admission=("TaintNodesByCondition",),
        # Webhooks are called at the addresses of their pods: kube-proxy, which knows the Service's, is not here.
        extra_arguments=("--enable-aggregator-routing=true",),
    )
    with ExitStack() as stack:
        stack.enter_context(plane)
        stack.enter_context(pod_network(folder / "node", plane.port))
        stack.enter_context(_shared_mounts())
        stack.callback(_remove, [path for path in _HOST_PATHS if not path.exists()])
        stack.enter_context(started_node(plane.kubeconfig, folder / "node", _NODE))
        importing = ("--address", f"{folder}/node/containerd.sock", "--namespace=k8s.io", "images", "import")
        subprocess.run(["ctr", *importing, str(archive)], check=True, capture_output=True)
        archive.unlink()
        stack.enter_context(running(_controllers(real_programs, plane, folder), folder / "controllers.log"))
        stack.enter_context(running(_scheduler(plane, folder), folder / "default-scheduler.log"))
        yield RolledOut(plane)
        # Else kubelet would leave them to whoever uses the machine next.
        shell("kubectl delete pods --all --all-namespaces --force", plane.kubeconfig)


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _shared_mounts() -> Iterator[None]:
    """As systemd leaves them, and as pods need that see mounts which are made later. Not so in every container."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    # Of each mount, the fifth field is where it is, and the seventh says whether it is shared.
    private = [each[4] for each in mounts if each[4] in ("/", "/sys") and not each[6].startswith("shared:")]
    for point in private:
        subprocess.run(["mount", "--make-shared", point], check=True)
    try:
        yield
    finally:
        for point in private:
            subprocess.run(["mount", "--make-private", point], check=True)


def _controllers(programs: RealPrograms, plane: ControlPlane, folder: Path) -> list[str]:
    return [
        str(programs.kubernetes / "kube-controller-manager"),
        f"--kubeconfig={plane.kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--service-account-private-key-file={folder}/cluster/service-account.key",
        f"--root-ca-file={folder}/cluster/certificates/apiserver.crt",
    ]


def _scheduler(plane: ControlPlane, folder: Path) -> list[str]:
    configuration = write_configuration(
        folder / "default-scheduler.yaml", kubeconfig=plane.kubeconfig, profile={"schedulerName": "default-scheduler"}
    )
    return [sys.executable, "-m", "koordinator.scheduler", f"--config={configuration}", "--port=0"]


_WORKLOADS: Final = (
    ("deployment", "koord-scheduler"),
    ("deployment", "koord-manager"),
    ("deployment", "koord-descheduler"),
    ("daemonset", "koordlet"),
    ("daemonset", "koord-device-daemon"),
)
_ONE_EACH: Final = "scheduler.replicas=1,manager.replicas=1,descheduler.replicas=1"
_REMOVE_DEFINITIONS: Final = "koord manifests --only=namespace,crd --for-deletion | kubectl delete --wait=false -f -"


@dataclass(frozen=True)
class Recipe:
    """Command lines of docs/install.md and docs/helm.md, for nodes of two CPUs."""

    install: str
    remove: str


_RECIPES: Final = {
    "manifests": Recipe(
        f"koord manifests --image={_tag('{program}')} --replicas=1 | kubectl apply -f -",
        "koord manifests --without=namespace,crd --for-deletion | kubectl delete --ignore-not-found -f -",
    ),
    "chart": Recipe(
        f"$HELM install koordinator charts/koordinator --set=imageRepositoryHost={REGISTRY},{_ONE_EACH}",
        "$HELM uninstall koordinator",
    ),
}
_LEND_ALL: Final = {
    "enable": True,
    "cpuReclaimThresholdPercent": 100,
    "memoryReclaimThresholdPercent": 100,
    "metricReportIntervalSeconds": 5,
    "metricAggregateDurationSeconds": 10,
    "updateTimeThresholdSeconds": 5,
}
"""Of a machine that other tests may keep busy."""
_PROFILE: Final = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "reports"},
    "spec": {
        "selector": {"matchLabels": {"app": "report"}},
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "schedulerName": "koord-scheduler",
    },
}


def _pod(name: str, **spec: Any) -> dict[str, Any]:
    resources = {"cpu": "50m", "memory": "32Mi"}
    container = {"name": "main", "image": PAUSE, "imagePullPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"containers": [{**container, "resources": {"requests": resources, "limits": resources}}], **spec},
    }


@pytest.mark.parametrize("name", _RECIPES)
def test_it_is_rolled_out_used_and_removed(name: str, cluster: RolledOut) -> None:
    recipe = _RECIPES[name]
    cluster.run(recipe.install)
    for kind, workload in _WORKLOADS:
        cluster.run(f"kubectl --namespace={NAMESPACE} rollout status {kind}/{workload} --timeout=110s")
    _use(cluster)
    restarts = {
        pod["metadata"]["name"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in cluster.pods()
    }
    assert list(restarts.values()) == [0] * len(_WORKLOADS), restarts
    assert [pod for pod, log in cluster.logs().items() if "forbidden" in log] == []
    _stop_lending(cluster)
    _uninstall(cluster, recipe)


def _uninstall(cluster: RolledOut, recipe: Recipe) -> None:
    """Until the namespace is gone, and with it the last pod."""
    cluster.run(recipe.remove)
    cluster.run(_REMOVE_DEFINITIONS)
    cluster.eventually(
        lambda: cluster.plane.request("GET", f"/api/v1/namespaces/{NAMESPACE}")[0] == 404, "no namespace"
    )


def _use(cluster: RolledOut) -> None:
    """A service, and a plain pod that a profile makes a batch pod: koord-manager's webhook changes it, what koordlet
    measures gives it capacity, koord-scheduler places it, and koordlet limits it by the kernel."""
    _lend(cluster, _LEND_ALL)
    cluster.apply(_PROFILE)
    cluster.apply(_pod("web", schedulerName="koord-scheduler", priorityClassName="koord-prod"))
    cluster.eventually(lambda: cluster.batch_cpu() > 50, "batch capacity")
    # The webhook has its profiles by a watch.
    cluster.apply(_pod("report"))
    for pod in ("web", "report"):
        cluster.eventually(partial(cluster.runs, pod), f"running {pod}")
    report = cluster.get("/api/v1/namespaces/default/pods/report")
    requests = report["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"kubernetes.io/batch-cpu": "50", "kubernetes.io/batch-memory": "32Mi"}
    quota = Path(f"/sys/fs/cgroup/cpu/kubepods/besteffort/pod{report['metadata']['uid']}/cpu.cfs_quota_us")
    cluster.eventually(lambda: quota.read_text().strip() == "5000", "quota of the batch pod")
    cluster.run("kubectl delete pods web report --force; kubectl delete clustercolocationprofiles reports")


def _lend(cluster: RolledOut, strategy: dict[str, Any]) -> None:
    patch = json.dumps({"data": {"colocation-config": json.dumps(strategy)}})
    cluster.run(
        f"kubectl --namespace={NAMESPACE} patch configmap slo-controller-config --type=merge -p {shlex.quote(patch)}"
    )


def _stop_lending(cluster: RolledOut) -> None:
    _lend(cluster, {"enable": False})
    cluster.eventually(lambda: cluster.batch_cpu() < 0, "end of batch capacity")


@dataclass
class PodCreations:
    """Pods that are created again and again, without being kept."""

    plane: ControlPlane
    ended: threading.Event = field(default_factory=threading.Event)
    changed: int = 0
    others: list[str] = field(default_factory=list)
    """The responses of the API server where the webhook has not changed the pod, or refused it."""

    def run(self) -> None:
        while not self.ended.is_set():
            code, response = self.plane.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", _pod("report"))
            if code == 201 and response["metadata"]["labels"].get("koordinator.sh/qosClass") == "BE":
                self.changed += 1
            else:
                self.others.append(json.dumps(response))


def test_every_pod_is_changed_while_koord_manager_is_replaced(cluster: RolledOut) -> None:
    """Its only replica, without whose webhooks no pod would be let in: the new one is ready when it serves them, and
    the old one finishes what it has begun."""
    parts = "--without=scheduler,descheduler,koordlet,device-daemon --webhook-failure-policy=Fail"
    cluster.run(f"koord manifests --image={_tag('{program}')} --replicas=1 {parts} | kubectl apply -f -")
    rolled_out = f"kubectl --namespace={NAMESPACE} rollout status deployment/koord-manager --timeout=110s"
    cluster.run(rolled_out)
    cluster.apply(_PROFILE)
    creations = PodCreations(cluster.plane)
    with ThreadPoolExecutor(1) as pool:
        running_creations = pool.submit(creations.run)
        try:
            cluster.eventually(lambda: creations.changed, "changed pod")
            creations.others.clear()
            already = creations.changed
            before = {pod["metadata"]["name"] for pod in cluster.pods()}
            cluster.run(f"kubectl --namespace={NAMESPACE} rollout restart deployment/koord-manager; {rolled_out}")
            cluster.eventually(
                lambda: before.isdisjoint(pod["metadata"]["name"] for pod in cluster.pods()), "replacement"
            )
        finally:
            creations.ended.set()
        running_creations.result()
    assert creations.others == []
    assert creations.changed > already + 10
    _uninstall(cluster, _RECIPES["manifests"])
