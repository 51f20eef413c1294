"""On a real node, koordlet names the pod that takes the CPUs from an online pod.

One agent goes by the pressure of cgroups, another one by how long threads wait.
"""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from koordinator.cli.main import main
from tests.free_ports import free_ports
from tests.real.node_pods import pod_document
from tests.real.polling import until
from tests.real.real_node import EnforcedNode, real_node

_NAMESPACE = "interference-test"
_WORKLOAD = r"""
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
/* workload BUSY PERIOD [FILE]: busy for BUSY of every PERIOD milliseconds; eight threads are always busy while there is
   FILE. */
static const char *file;
static long long now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void burn(long long ns) {
  for (long long end = now(CLOCK_THREAD_CPUTIME_ID) + ns; now(CLOCK_THREAD_CPUTIME_ID) < end;) ;
}
static void *disturb(void *_) {
  for (;;) if (access(file, F_OK)) usleep(50000); else burn(20000000);
}
static void stop(int s) { _exit(0); }
int main(int argc, char **argv) {
  long long busy = atoll(argv[1]) * 1000000, period = atoll(argv[2]) * 1000000;
  signal(SIGTERM, stop);
  pthread_t thread;
  if (argc > 3) { file = argv[3]; for (int i = 0; i < 8; i++) pthread_create(&thread, 0, disturb, 0); }
  for (long long next = now(CLOCK_MONOTONIC);;) {
    burn(busy);
    next += period;
    long long rest = next - now(CLOCK_MONOTONIC);
    if (rest > 0) usleep(rest / 1000); else next -= rest;
  }
}
"""
_LEARNED = 40
"""Rounds of a second: thirty make a normal band."""
_GATES = "--feature-gates=InterferenceDetection=true,PSICollector={}"
_FAST = ("--interference-interval=1s", "--psi-collector-interval=1s", "--observe-only")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the pods' program, and the file that starts the antagonist."""
    made = tmp_path_factory.mktemp("shared")
    source = made / "workload.c"
    source.write_text(_WORKLOAD)
    subprocess.run(["gcc", "-O1", "-static", "-pthread", "-o", str(made / "workload"), str(source)], check=True)
    return made


@pytest.fixture(scope="module")
def node(real_cluster: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnforcedNode]:
    """With an online pod that has a rhythm, three batch pods, and another online pod, which becomes an antagonist when
    it is told to: kubelet gives best-effort pods so little weight that they disturb nobody on these kernels."""
    with real_node(real_cluster, tmp_path_factory.mktemp("node"), "interference-node", _NAMESPACE) as made:
        made.run_pod(_pod("web", "LS", folder, {"cpu": "300m"}, "30", "100"))
        for number in range(3):
            made.run_pod(_pod(f"batch-{number}", "BE", folder, {}, str(5 * number + 5), "100"))
        made.run_pod(_pod("antagonist", "LS", folder, {"cpu": "1"}, "5", "100", "/shared/go"))
        policy = {"reportIntervalSeconds": 2, "aggregateDurationSeconds": 10}
        header = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": made.name}}
        made.apply({**header, "spec": {"metricCollectPolicy": policy}})
        yield made


def _pod(name: str, qos: str, folder: Path, requests: dict[str, str], *arguments: str) -> dict[str, Any]:
    container = {
        "command": ["/shared/workload", *arguments],
        "resources": {"requests": requests},
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    }
    document = pod_document("interference-node", _NAMESPACE, name, container, {"koordinator.sh/qosClass": qos})
    document["spec"]["volumes"] = [{"name": "shared", "hostPath": {"path": str(folder)}}]
    return document


class Agent:
    """A koordlet that takes a reading every second, and changes nothing."""

    def __init__(self, node: EnforcedNode, folder: Path, *flags: str) -> None:
        folder.mkdir()
        self.log = folder / "log"
        (self.port,) = free_ports(1)
        address = f"--addr=127.0.0.1:{self.port}"
        self._process = node.start_koordlet(self.log, address, *_FAST, *flags)

    def rounds(self) -> float:
        """How often pods were compared with what is normal for them."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as response:
                lines = response.read().decode().splitlines()
        except OSError:
            return 0
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if counts_rounds(line))

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(15) == 0, self.log.read_text()


def counts_rounds(line: str) -> bool:
    """Whether it is the metric of how often pods were compared."""
    return "loop_duration_seconds_count" in line and 'loop="interference"' in line


def _findings(node: EnforcedNode) -> list[dict[str, Any]]:
    """Of the online pod, in the NodeMetric."""
    pods = node.get("nodemetrics", node.name).get("status", {}).get("podsMetric", [])
    web = [pod for pod in pods if pod["name"] == "web"]
    return [each for pod in web for each in pod.get("extensions", {}).get("Object", {}).get("interference", [])]


def _reported(node: EnforcedNode, indicator: str) -> list[str]:
    """What events say of the online pod, by one indicator, in their order."""
    events = node.get("events", namespace=_NAMESPACE)["items"]
    found = [each for each in events if each["reason"] == "InterferenceDetected"]
    found.sort(key=lambda event: event["metadata"]["creationTimestamp"])
    return [each["message"] for each in found if each["message"].startswith(f"{indicator} is ")]


def _is_reported(node: EnforcedNode) -> bool:
    """By events of both agents, and in the NodeMetric."""
    in_events = all(_reported(node, name) for name in ("cpu-pressure", "cpu-wait"))
    return in_events and any(each["indicator"] == "cpu-pressure" for each in _findings(node))


@pytest.fixture(scope="module")
def disturbed(node: EnforcedNode, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> EnforcedNode:
    """The node after the antagonist was at work. One agent goes by pressure, and reports; the other one has none."""
    logs = tmp_path_factory.mktemp("agents")
    with ExitStack() as running:
        agents = [
            Agent(node, logs / "pressure", _GATES.format("true")),
            Agent(node, logs / "threads", _GATES.format("false"), "--enable-node-metric-report=false"),
        ]
        for agent in agents:
            running.callback(agent.stop)
        until(lambda: all(agent.rounds() >= _LEARNED for agent in agents), 180)
        (folder / "go").touch()
        running.callback((folder / "go").unlink)
        until(lambda: _is_reported(node), 90)
    return node


@pytest.mark.parametrize("indicator", ["cpu-pressure", "cpu-wait"])
def test_an_event_names_the_antagonist(disturbed: EnforcedNode, indicator: str) -> None:
    notes = _reported(disturbed, indicator)
    assert notes
    assert f"suspect: LS pod {_NAMESPACE}/antagonist (correlation" in notes[-1]
    assert notes[-1].endswith("advice: pin it")


def test_the_node_metric_names_the_antagonist_first(disturbed: EnforcedNode) -> None:
    (finding,) = [each for each in _findings(disturbed) if each["indicator"] == "cpu-pressure"]
    first = finding["suspects"][0]
    assert (first["pod"], first["advice"]) == (f"{_NAMESPACE}/antagonist", "pin")
    assert first["correlation"] >= 0.35


def test_the_explanation_names_the_antagonist(disturbed: EnforcedNode, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = f"--kubeconfig={disturbed.kubeconfig}"
    assert main(["explain", "interference", disturbed.name, "-o", "json", kubeconfig]) == 0
    victims = json.loads(capsys.readouterr().out)["victims"]
    (victim,) = [each for each in victims if each["indicator"] == "cpu-pressure"]
    assert victim["pod"] == f"{_NAMESPACE}/web"
    assert victim["suspects"][0]["pod"] == f"{_NAMESPACE}/antagonist"
