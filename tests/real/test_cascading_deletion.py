"""What goes, what stays and what waits when an owner is deleted: on kube-apiserver with the garbage collector of
kube-controller-manager, on the embedded API with its own, and on the embedded API with both.

What is expected is written down for each scenario; that the first of the three does it says that it is right.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from koordinator.cluster.server import ServerOptions
from tests.cluster.admission_webhooks.api_server import ApiServer
from tests.cluster.embedded_thread import embedded_server
from tests.real.control_plane import ControlPlane
from tests.real.polling import until
from tests.real.programs import RealPrograms

Document = dict[str, Any]
SECONDS: Final = 60.0
HELD: Final = "x.io/held"
GROUP: Final = "gc.example.com"
NOWHERE: Final = "00000000-0000-0000-0000-000000000000"
SERVERS: Final = ("kube-apiserver", "embedded", "embedded with kube-controller-manager")
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_TEMPLATE: Final = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
_ENDING: Final = {**_TEMPLATE, "spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}  # type: ignore[dict-item]
_REPLICAS: Final = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}


@dataclass(frozen=True, eq=False)
class Kind:
    api_version: str
    name: str
    plural: str
    namespaced: bool = True
    body: Mapping[str, Any] = field(default_factory=dict)

    def path(self, namespace: str, name: str = "") -> str:
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        place = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{root}{place}/{self.plural}" + (f"/{name}" if name else "")


CONFIG_MAP: Final = Kind("v1", "ConfigMap", "configmaps")
NAMESPACE: Final = Kind("v1", "Namespace", "namespaces", namespaced=False)
PRIORITY: Final = Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False, body={"value": 7})
CONTROLLER: Final = Kind(
    "v1",
    "ReplicationController",
    "replicationcontrollers",
    body={"spec": {"replicas": 0, "selector": {"a": "b"}, "template": _TEMPLATE}},
)
REPLICA_SET: Final = Kind("apps/v1", "ReplicaSet", "replicasets", body={"spec": _REPLICAS})
DEPLOYMENT: Final = Kind("apps/v1", "Deployment", "deployments", body={"spec": _REPLICAS})
STATEFUL_SET: Final = Kind("apps/v1", "StatefulSet", "statefulsets", body={"spec": {**_REPLICAS, "serviceName": "s"}})
DAEMON_SET: Final = Kind(
    "apps/v1",
    "DaemonSet",
    "daemonsets",
    body={"spec": {name: value for name, value in _REPLICAS.items() if name != "replicas"}},
)
JOB: Final = Kind("batch/v1", "Job", "jobs", body={"spec": {"suspend": True, "template": _ENDING}})
CRON_JOB: Final = Kind(
    "batch/v1",
    "CronJob",
    "cronjobs",
    body={"spec": {"suspend": True, "schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": _ENDING}}}},
)
POD: Final = Kind("v1", "Pod", "pods", body={"spec": {"containers": [{"name": "main", "image": "i"}]}})
EVENT: Final = Kind("v1", "Event", "events", body={"involvedObject": {}, "reason": "R", "message": "m"})
SERVICE: Final = Kind("v1", "Service", "services", body={"spec": {"ports": [{"port": 80}]}})
WIDGET: Final = Kind(f"{GROUP}/v1", "Widget", "widgets")
WORLD: Final = Kind(f"{GROUP}/v1", "World", "worlds", namespaced=False)
UNKNOWN: Final = Kind(f"{GROUP}/v1", "Unknown", "unknowns")


class Server(Protocol):
    def request(self, method: str, path: str, document: Any = None) -> tuple[int, Document]: ...


class Embedded:
    def __init__(self, kubeconfig: Path) -> None:
        self._server = ApiServer(kubeconfig)

    def request(self, method: str, path: str, document: Any = None) -> tuple[int, Document]:
        response = self._server.request(method, path, document)
        return response.code, response.body


class Scene:
    """A namespace, in which objects are given short names. Those of cluster-scoped kinds have its name in front."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.server = server
        self.namespace = namespace
        self._kinds: dict[str, Kind] = {}
        self._uids: dict[str, str] = {}
        self.answers: list[tuple[int, Any]] = []
        """Of deletions: the code, and the finalizers of what came back."""

    def make(
        self,
        name: str,
        *owners: str | tuple[Kind, str, str],
        kind: Kind = CONFIG_MAP,
        block: bool = True,
        held: bool = False,
        finalizers: Sequence[str] = (),
    ) -> None:
        """An owner is the name of another one, or a kind, a name and an uid."""
        self._kinds[name] = kind
        references = [self._reference(owner, block=block) for owner in owners]
        metadata = {
            "name": self._name(name),
            "labels": {"name": name},
            "ownerReferences": references,
            "finalizers": [*finalizers, *([HELD] if held else [])],
        }
        document = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **kind.body}
        if kind is EVENT:
            document["involvedObject"] = {"namespace": self.namespace}
        code, made = self.server.request("POST", kind.path(self.namespace), document)
        assert code == 201, made.get("message")
        self._uids[name] = made["metadata"]["uid"]

    def uid(self, name: str) -> str:
        return self._uids[name]

    def name(self, name: str) -> str:
        return self._name(name)

    def adopt(self, name: str, *owners: str, block: bool = True) -> None:
        references = [self._reference(owner, block=block) for owner in owners]
        self._patch(name, {"ownerReferences": references})

    def let_go(self, name: str) -> None:
        """Take away the finalizer that holds it."""
        self._patch(name, {"finalizers": None})

    def delete(self, name: str, policy: str = "", **options: Any) -> None:
        if policy:
            options["propagationPolicy"] = policy
        self._delete(self._path(name), options)

    def delete_labelled(self, names: str, policy: str) -> None:
        path = f"{CONFIG_MAP.path(self.namespace)}?labelSelector=name+in+({names})"
        self._delete(path, {"propagationPolicy": policy})

    def state(self) -> dict[str, str]:
        """Of each object that is left: its owners, its finalizers, and whether it is being deleted."""
        found = {}
        for name in self._kinds:
            code, document = self.server.request("GET", self._path(name))
            if code != 404:
                assert code == 200
                metadata = document["metadata"]
                uids = {uid: each for each, uid in self._uids.items()}
                owners = [uids.get(each["uid"], "?") for each in metadata.get("ownerReferences", ())]
                finalizers = sorted(metadata.get("finalizers", ()))
                leaving = "leaving" if "deletionTimestamp" in metadata else "stays"
                found[name] = " ".join((leaving, *owners, *finalizers))
        return found

    def reasons(self) -> set[str]:
        """Of the events about objects here."""
        _, found = self.server.request("GET", "/api/v1/events")
        names = {self._name(each) for each in self._kinds}
        return {
            f"{each['reason']}: {each['message'].partition(',')[0]}"
            for each in found["items"]
            if each["involvedObject"].get("name") in names
            and each["involvedObject"].get("namespace", "") in ("", self.namespace)
        }

    def _name(self, name: str) -> str:
        return name if self._kinds[name].namespaced else f"{self.namespace}-{name}"

    def _path(self, name: str) -> str:
        return self._kinds[name].path(self.namespace, self._name(name))

    def _reference(self, owner: str | tuple[Kind, str, str], *, block: bool) -> Document:
        if isinstance(owner, str):
            kind, name, uid = self._kinds[owner], self._name(owner), self._uids[owner]
        else:
            kind, name, uid = owner
        reference = {"apiVersion": kind.api_version, "kind": kind.name, "name": name, "uid": uid}
        return {**reference, "blockOwnerDeletion": block}

    def _patch(self, name: str, metadata: Document) -> None:
        code, found = self.server.request("GET", self._path(name))
        assert code == 200
        for field_, value in metadata.items():
            found["metadata"][field_] = value
        code, found = self.server.request("PUT", self._path(name), found)
        assert code == 200, found.get("message")

    def _delete(self, path: str, options: Document) -> None:
        code, body = self.server.request("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        metadata = body.get("metadata") or {}
        self.answers.append((code, sorted(metadata.get("finalizers") or ())))


Step = Callable[[Scene], None]
Expected = Mapping[str, str]


@dataclass(frozen=True)
class Scenario:
    """Steps, each with what is there once everything has come to rest."""

    steps: Sequence[tuple[Step, Expected]]
    reasons: frozenset[str] = frozenset()


def _family(scene: Scene, **options: Any) -> None:
    scene.make("owner", finalizers=options.pop("finalizers", ()))
    scene.make("a", "owner", **options)
    scene.make("b", "owner")


def _and_delete(make: Step, name: str, policy: str = "", **options: Any) -> Step:
    def step(scene: Scene) -> None:
        make(scene)
        scene.delete(name, policy, **options)

    return step


def _of_kind(kind: Kind, policy: str = "") -> Step:
    """An owner of a kind, held, which shows what a deletion without a word has made of it."""

    def step(scene: Scene) -> None:
        scene.make("owner", kind=kind, held=True)
        if kind is not EVENT:
            scene.make("a", (kind, scene.name("owner"), scene.uid("owner")))
        scene.delete("owner", policy)

    return step


def _chain(scene: Scene) -> None:
    scene.make("owner")
    scene.make("a", "owner")
    scene.make("b", "a", held=True)


def _two_owners(scene: Scene, **other: Any) -> None:
    scene.make("owner")
    scene.make("other", **other)
    scene.make("a", "owner", "other")


def _circle(scene: Scene) -> None:
    scene.make("a")
    scene.make("b", "a")
    scene.adopt("a", "b")


def _of_other_namespace(scene: Scene) -> None:
    # The namespace itself is the only thing elsewhere that has a known name.
    scene.make("owner")
    other = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{scene.namespace}-other"}}
    assert scene.server.request("POST", "/api/v1/namespaces", other)[0] == 201
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": scene.uid("owner")}
    path = CONFIG_MAP.path(f"{scene.namespace}-other")
    document = {"metadata": {"name": "stray", "ownerReferences": [reference]}}
    assert scene.server.request("POST", path, document)[0] == 201
    until(lambda: scene.server.request("GET", f"{path}/stray")[0] == 404, SECONDS, "the stray dependent to go")
    _, events = scene.server.request("GET", f"/api/v1/namespaces/{scene.namespace}-other/events")
    assert "OwnerRefInvalidNamespace" in [each["reason"] for each in events["items"]]


def _mismatch(scene: Scene) -> None:
    scene.make("owner")
    scene.make("a", (CONFIG_MAP, "owner", NOWHERE))
    scene.make("b", (CONFIG_MAP, "nobody", NOWHERE))


def _invalid(scene: Scene) -> None:
    scene.make("owner")
    scene.make("a", (CONFIG_MAP, "owner", scene.uid("owner")), kind=PRIORITY)


def _custom(scene: Scene) -> None:
    scene.make("owner", kind=WIDGET)
    scene.make("a", "owner", kind=WIDGET)
    scene.make("b", "owner")


def _of_priority(scene: Scene) -> None:
    scene.make("owner", kind=PRIORITY)
    scene.make("a", "owner")
    scene.delete("owner", "Foreground")


def _collection(scene: Scene) -> None:
    for number in (1, 2):
        scene.make(f"owner{number}")
        scene.make(f"a{number}", f"owner{number}")
    scene.delete_labelled("owner1,owner2", "Orphan")


def _precondition(scene: Scene) -> None:
    _family(scene)
    scene.delete("owner", "Orphan", preconditions={"uid": NOWHERE})
    scene.delete("owner", "Foreground", preconditions={"resourceVersion": "1"})


_ALL: Final = {"owner": "stays", "a": "stays owner", "b": "stays owner"}
_FREE: Final = {"a": "stays", "b": "stays"}
_HELD_A: Final = {"owner": "leaving foregroundDeletion", "a": f"leaving owner {HELD}"}
_ORPHANING: Final = (CONTROLLER, JOB)
USUAL: Final = (*_ORPHANING, REPLICA_SET, DEPLOYMENT, STATEFUL_SET, DAEMON_SET, CRON_JOB, SERVICE, WIDGET, WORLD)
SCENARIOS: Final[Mapping[str, Scenario]] = {
    "background": Scenario([(_and_delete(_family, "owner"), {})]),
    "background, said": Scenario([(_and_delete(_family, "owner", "Background"), {})]),
    "orphan": Scenario([(_and_delete(_family, "owner", "Orphan"), _FREE)]),
    "orphan, by the old name": Scenario([(_and_delete(_family, "owner", orphanDependents=True), _FREE)]),
    "not orphaned, by the old name": Scenario([(_and_delete(_family, "owner", orphanDependents=False), {})]),
    "foreground": Scenario([(_and_delete(_family, "owner", "Foreground"), {})]),
    "foreground, with one that stays for a while": Scenario(
        [
            (_and_delete(partial(_family, held=True), "owner", "Foreground"), _HELD_A),
            (lambda scene: scene.let_go("a"), {}),
        ]
    ),
    "foreground, with one that does not block": Scenario(
        [(_and_delete(partial(_family, held=True, block=False), "owner", "Foreground"), {"a": f"leaving owner {HELD}"})]
    ),
    "foreground, then background": Scenario(
        [
            (_and_delete(partial(_family, held=True), "owner", "Foreground"), _HELD_A),
            (lambda scene: scene.delete("owner", "Background"), {"a": f"leaving owner {HELD}"}),
        ]
    ),
    "foreground, through three generations": Scenario(
        [
            (
                _and_delete(_chain, "owner", "Foreground"),
                {
                    "owner": "leaving foregroundDeletion",
                    "a": "leaving owner foregroundDeletion",
                    "b": f"leaving a {HELD}",
                },
            ),
            (lambda scene: scene.let_go("b"), {}),
        ]
    ),
    "background, through three generations": Scenario(
        [(_and_delete(_chain, "owner"), {"b": f"leaving a {HELD}"}), (lambda scene: scene.let_go("b"), {})]
    ),
    "orphan, in the middle": Scenario([(_and_delete(_chain, "a", "Orphan"), {"owner": "stays", "b": f"stays {HELD}"})]),
    "an owner that is not there, and one of another uid": Scenario([(_mismatch, {"owner": "stays"})]),
    "two owners, of which one goes": Scenario(
        [(_and_delete(_two_owners, "owner"), {"other": "stays", "a": "stays other"})]
    ),
    "two owners, of which one waits": Scenario(
        [(_and_delete(_two_owners, "owner", "Foreground"), {"other": "stays", "a": "stays other"})]
    ),
    "two owners, which both go": Scenario(
        [
            (_and_delete(_two_owners, "owner"), {"other": "stays", "a": "stays other"}),
            (lambda scene: scene.delete("other"), {}),
        ]
    ),
    "a circle, in the foreground": Scenario([(_and_delete(_circle, "a", "Foreground"), {})]),
    "a circle, in the background": Scenario([(_and_delete(_circle, "a"), {})]),
    "the finalizers of others": Scenario(
        [
            (
                _and_delete(partial(_family, finalizers=("x.io/other",)), "owner", "Orphan"),
                {"owner": "leaving x.io/other", **_FREE},
            )
        ]
    ),
    "a finalizer that was there before": Scenario(
        [(_and_delete(partial(_family, finalizers=("orphan",)), "owner"), _FREE)]
    ),
    "a finalizer that was there before, and another word": Scenario(
        [(_and_delete(partial(_family, finalizers=("orphan",)), "owner", "Background"), {})]
    ),
    "a collection": Scenario([(_collection, {"a1": "stays", "a2": "stays"})]),
    "a trial": Scenario([(_and_delete(_family, "owner", "Orphan", dryRun=["All"]), _ALL)]),
    "preconditions that do not hold": Scenario([(_precondition, _ALL)]),
    "a cluster-scoped owner": Scenario([(_of_priority, {})]),
    "a namespaced owner of what is cluster-scoped": Scenario(
        [(_invalid, {"owner": "stays", "a": "stays owner"})],
        frozenset({"OwnerRefInvalidNamespace: ownerRef [v1/ConfigMap"}),
    ),
    "an owner in another namespace": Scenario([(_of_other_namespace, {"owner": "stays"})]),
    "an owner of a kind that is not served": Scenario(
        [(lambda scene: scene.make("a", (UNKNOWN, "owner", NOWHERE)), {"a": "stays ?"})]
    ),
    "custom resources": Scenario([(_and_delete(_custom, "owner", "Foreground"), {})]),
    "custom resources, orphaned": Scenario([(_and_delete(_custom, "owner", "Orphan"), _FREE)]),
    **{
        f"what is usual for a {kind.name}": Scenario(
            [(_of_kind(kind), {"owner": f"leaving {HELD}", "a": "stays" if kind in _ORPHANING else "stays owner"})]
        )
        for kind in USUAL
    },
    "an Event": Scenario([(_of_kind(EVENT, "Foreground"), {"owner": f"leaving {HELD}"})]),
    "a Pod": Scenario([(_of_kind(POD, "Orphan"), {"owner": f"leaving {HELD}", "a": "stays"})]),
    "a Namespace": Scenario([(_of_kind(NAMESPACE, "Orphan"), {"owner": f"leaving {HELD}", "a": "stays"})]),
}


def _definition(kind: Kind) -> Document:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"plural": kind.plural, "singular": kind.name.lower(), "kind": kind.name},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@contextmanager
def controllers(program: Path, kubeconfig: Path, log: Path, which: str) -> Iterator[None]:
    command = [str(program), f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"]
    arguments = ["--use-service-account-credentials=false", f"--controllers={which}"]
    with log.open("wb") as output, subprocess.Popen([*command, *arguments], stderr=output) as running:
        try:
            yield
        finally:
            running.terminate()
            running.wait(20)


@pytest.fixture(scope="module")
def servers(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Server]]:
    folder = tmp_path_factory.mktemp("cascading")
    program = real_programs.kubernetes / "kube-controller-manager"
    with ExitStack() as stack:
        plane = ControlPlane(real_programs.kubernetes, folder / "real")
        stack.enter_context(plane)
        made: dict[str, Server] = {SERVERS[0]: plane}
        kubeconfigs = {SERVERS[0]: plane.kubeconfig}
        for name in SERVERS[1:]:
            (place := folder / name.replace(" ", "-")).mkdir()
            kubeconfigs[name] = stack.enter_context(embedded_server(place, ServerOptions()))
            made[name] = Embedded(kubeconfigs[name])
        for server in made.values():
            for kind in (WIDGET, WORLD):
                assert server.request("POST", _DEFINITIONS, _definition(kind))[0] == 201
                until(partial(_is_served, server, kind), SECONDS, f"{kind.plural} to be served")
        for name in (SERVERS[0], SERVERS[2]):
            log = folder / f"controllers-{kubeconfigs[name].parent.name}.log"
            which = "garbage-collector-controller,namespace-controller"
            stack.enter_context(controllers(program, kubeconfigs[name], log, which))
        yield made


def _is_served(server: Server, kind: Kind) -> bool:
    return server.request("GET", kind.path("default"))[0] == 200


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_left(servers: Mapping[str, Server], name: str) -> None:
    answers = {}
    for which, server in servers.items():
        namespace = f"s{list(SCENARIOS).index(name)}"
        created = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        assert server.request("POST", "/api/v1/namespaces", created)[0] == 201
        scene = Scene(server, namespace)
        for step, expected in SCENARIOS[name].steps:
            step(scene)
            _await_state(scene, expected, which)
        until(partial(_has_said, scene, SCENARIOS[name].reasons), SECONDS, which)
        answers[which] = scene.answers
    assert answers[SERVERS[1]] == answers[SERVERS[0]]


def _has_said(scene: Scene, reasons: frozenset[str]) -> bool:
    return not reasons or reasons <= scene.reasons()


def _await_state(scene: Scene, expected: Expected, which: str) -> None:
    end = time.monotonic() + SECONDS
    while (state := scene.state()) != expected and time.monotonic() < end:
        time.sleep(0.1)
    assert (which, state) == (which, expected)
