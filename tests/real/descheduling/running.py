"""Runs either descheduler until its cycles have done what they will, and tells what that was."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tests.free_ports import free_ports
from tests.real.control_plane import ControlPlane
from tests.real.descheduling.cluster import Cluster, NodeCase, PodCase
from tests.real.installation import program
from tests.real.programs import RealPrograms

_OURS: Final = Path(sys.executable).parent / "koord-descheduler"
_SECONDS: Final = 120.0
_EVICTED: Final = re.compile(
    r'Evicted pod"? pod="?default/(?P<pod>[a-z0-9-]+)"? (?:.*?)reason="(?P<reason>[^"]*)" strategy="?(?P<plugin>\w+)'
)
_EVICTED_HERE: Final = re.compile(
    r'Evicted pod pod=default/(?P<pod>[a-z0-9-]+) node=\S+ strategy=(?P<plugin>\w+) reason="?(?P<reason>.*?)"?$'
)
_EVICT: Final = "koordinator.sh/evict-"
"""Begins the annotations that both write."""
_DONE: Final = (
    "Successfully processed nodePool",
    "LowNodeLoad is paused",
    "Descheduling cycle done",
    "Error descheduling pods",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Pods that left, each with the plugin and the reason, in the order in which they did."""

    evicted: Mapping[str, tuple[str, str]]
    left: frozenset[str]
    """Pods that are not there any more, by the API server."""
    events: frozenset[tuple[str, str, str, str]]
    """Of pods: the name, the type, the reason and the note."""
    jobs: Sequence[Mapping[str, Any]]
    """The PodMigrationJobs."""
    log: str


def ends_of_jobs(outcome: Outcome, pods: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """By pod, of these pods: what its job says, and whether the pod has left."""
    ends: dict[str, Mapping[str, Any]] = {}
    for job in outcome.jobs:
        name, spec, status = job["spec"]["podRef"]["name"], job["spec"], job.get("status", {})
        if name in pods:
            annotations = job["metadata"].get("annotations", {})
            ends[name] = {
                "mode": spec["mode"],
                "ttl": spec["ttl"],
                "annotations": {key: value for key, value in annotations.items() if key.startswith(_EVICT)},
                "end": [status.get(key) for key in ("phase", "status", "reason", "message")],
                "conditions": {
                    (each["type"], each["status"], each.get("reason"), each.get("message"))
                    for each in status.get("conditions", ())
                },
                "left": name in outcome.left,
            }
    return ends


def configuration(plugins: Mapping[str, Any], arguments: Mapping[str, Any], **settings: Any) -> dict[str, Any]:
    """One profile that evicts directly."""
    points = {
        "evict": {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]},
        "filter": {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]},
        **{point: {"enabled": [{"name": name} for name in names]} for point, names in plugins.items()},
    }
    (port,) = free_ports(1)
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "healthzBindAddress": f"127.0.0.1:{port}",
        "metricsBindAddress": f"127.0.0.1:{port}",
        **settings,
        "profiles": [
            {
                "name": "koord-descheduler",
                "plugins": points,
                "pluginConfig": [
                    {
                        "name": name,
                        "args": {"apiVersion": "descheduler/v1alpha2", "kind": f"{name}Args", **given},
                    }
                    for name, given in arguments.items()
                ],
            }
        ],
    }


def run_both(
    programs: RealPrograms,
    plane: ControlPlane,
    folder: Path,
    nodes: Sequence[NodeCase],
    pods: Sequence[PodCase],
    settings: Mapping[str, Any],
    *,
    prepare: Callable[[], None] = lambda: None,
    quiet: float = 1.5,
) -> tuple[Outcome, Outcome]:
    """Ours and the original's, on the same cluster; ``prepare`` adds to it. They run until no pod has left for
    ``quiet`` seconds."""
    trial = Trial(Cluster(plane), nodes, pods, settings, prepare, quiet)
    trial.cluster.install()
    return trial.ours(folder / "ours"), trial.original(programs, folder / "original")


@dataclass(frozen=True, slots=True)
class Trial:
    """What a program finds, each time anew."""

    cluster: Cluster
    nodes: Sequence[NodeCase]
    pods: Sequence[PodCase]
    settings: Mapping[str, Any]
    prepare: Callable[[], None] = lambda: None
    quiet: float = 1.5
    workloads: Mapping[str, int] = field(default_factory=dict)

    def ours(self, folder: Path) -> Outcome:
        return _run([str(_OURS), "-v=5"], _EVICTED_HERE, self, folder)

    def original(self, programs: RealPrograms, folder: Path) -> Outcome:
        return _run([str(programs.original / "koord-descheduler"), "-v=5", "--secure-port=0"], _EVICTED, self, folder)


def _run(command: Sequence[str], pattern: re.Pattern[str], trial: Trial, folder: Path) -> Outcome:
    cluster = trial.cluster
    cluster.set_up(trial.nodes, trial.pods, trial.workloads)
    trial.prepare()
    folder.mkdir(parents=True)
    written, log = folder / "configuration.yaml", folder / "log"
    connection = {"kubeconfig": str(cluster.plane.kubeconfig), "qps": 200, "burst": 400}
    written.write_text(yaml.safe_dump({**trial.settings, "clientConnection": connection}))
    with program([*command, f"--config={written}"], log) as process:
        _wait_until_quiet(process, log, cluster, trial.quiet)
    text = log.read_text(errors="replace")
    lines = [found for line in text.splitlines() if (found := pattern.search(line))]
    evicted = {found["pod"]: (found["plugin"], found["reason"]) for found in lines}
    left = frozenset({pod.name for pod in trial.pods} - cluster.pods())
    return Outcome(evicted, left, cluster.events(), cluster.jobs(), text)


def _wait_until_quiet(process: subprocess.Popen[bytes], log: Path, cluster: Cluster, quiet: float) -> None:
    """Until a cycle is over, and for a while no pod has left any more and no job has gone on."""
    deadline = time.monotonic() + _SECONDS
    seen, since = _progress(cluster), time.monotonic()
    while time.monotonic() < deadline:
        time.sleep(0.2)
        assert process.poll() is None, log.read_text()[-3000:]
        text = log.read_text(errors="replace")
        now = _progress(cluster)
        if now != seen or not any(done in text for done in _DONE):
            seen, since = now, time.monotonic()
        if time.monotonic() - since > quiet:
            return
    raise AssertionError(f"no cycle in {_SECONDS:.0f}s: {log.read_text(errors='replace')[-3000:]}")


def _progress(cluster: Cluster) -> tuple[set[str], list[str]]:
    return cluster.pods(), [job["metadata"]["resourceVersion"] for job in cluster.jobs()]
