"""Upgrades from the charts of the Go original with Helm, on a real API server, by each flag that Helm has for values.

Either there is everything afterwards that the chart installs, or nothing has changed; a rollback brings back what was.
No upgrade deletes a CustomResourceDefinition or the namespace, with what is in them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import pytest

import koordinator
from tests.chart.original import WITH_OBJECTS, original_chart, original_objects, original_values
from tests.chart.renderings import CHART, Document, recorded
from tests.real.control_plane import ControlPlane
from tests.real.helm import helm_command, helm_program
from tests.real.installation import NAMESPACE, eventually, shell

pytestmark = pytest.mark.slow

_PROGRAMS: Final = ("manager", "scheduler", "descheduler", "koordlet", "deviceDaemon")
_IMAGES: Final[Document] = {"imageRepositoryHost": "registry.example/team"} | {
    program: {"image": {"repository": "koordinator", "tag": koordinator.__version__}} for program in _PROGRAMS
}
_NO_IMAGES: Final = ",".join(("imageRepositoryHost=registry.example", *(f"{each}.image=null" for each in _PROGRAMS)))
_QUOTAS: Final = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{NAMESPACE}/elasticquotas"
_RESERVATIONS: Final = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
_KEPT: Final = ("Namespace", "CustomResourceDefinition")
_QUOTA: Final = {
    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
    "kind": "ElasticQuota",
    "metadata": {"name": "team"},
}
_RESERVATION: Final = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {"name": "room"},
    "spec": {"template": {}, "owners": [{"object": {"name": "web"}}], "ttl": "0s"},
}
_RELEASE: Final = "koordinator"


class Release:
    """A release of the original, of which somebody has set ``scheduler.replicas`` to 3, with objects of users."""

    def __init__(self, plane: ControlPlane, folder: Path, version: str) -> None:
        self._plane = plane
        self.folder = folder
        # No record is dropped: the first one is rolled back to.
        self._command = f"HELM_MAX_HISTORY=0 {helm_command(helm_program(), folder / 'helm')}"
        self.version = version
        self.helm("install", _RELEASE, str(original_chart(version, folder)), "--set=scheduler.replicas=3")
        for path, document in ((_QUOTAS, _QUOTA), (_RESERVATIONS, _RESERVATION)):
            # A definition is served a moment after it is there.
            eventually(partial(self._create, path, document), path)
        self.kept = self._kept()

    def _create(self, path: str, document: Document) -> bool:
        return self._plane.request("POST", path, document)[0] == 201

    def helm(self, *words: str) -> str:
        return shell(f"{self._command} {shlex.join(words)}", self._plane.kubeconfig)

    def upgrade(self, *flags: str) -> str:
        return self.helm("upgrade", _RELEASE, str(CHART), *flags)

    def roll_back(self) -> None:
        """To the original."""
        self.helm("rollback", _RELEASE, "1")

    def refused(self, *flags: str) -> str:
        """What Helm says to an upgrade that fails."""
        words = shlex.join(["upgrade", _RELEASE, str(CHART), *flags])
        return shell(f"! {{ {self._command} {words} 2>&1; }}", self._plane.kubeconfig)

    def values_file(self, values: Mapping[str, object]) -> str:
        path = self.folder / "values.json"
        path.write_text(json.dumps(values))
        return f"--values={path}"

    def live(self, documents: list[Document]) -> dict[tuple[str, str], Document]:
        """These objects on the API server. Fails where one is not there."""
        path = self.folder / "objects.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
        found = json.loads(shell(f"kubectl get -f {path} -o json", self._plane.kubeconfig))["items"]
        return {(each["kind"], each["metadata"]["name"]): each for each in found}

    def _kept(self) -> dict[tuple[str, str], str]:
        """Identity by name of what no upgrade may delete, with an object of a user's in each."""
        live = self.live([each for each in original_objects(self.version) if each["kind"] in _KEPT])
        for path in (f"{_QUOTAS}/team", f"{_RESERVATIONS}/room"):
            code, document = self._plane.request("GET", path)
            assert code == 200, path
            live[path, ""] = document
        assert not [key for key, each in live.items() if "deletionTimestamp" in each["metadata"]]
        return {key: each["metadata"]["uid"] for key, each in live.items()}

    def assert_nothing_lost(self) -> None:
        assert self._kept() == self.kept

    def assert_original(self) -> None:
        """Everything of the original is there, with its images."""
        self.assert_nothing_lost()
        documents = original_objects(self.version)
        live = self.live(documents)
        for each in documents:
            if each["kind"] in ("DaemonSet", "Deployment"):
                assert image(live[each["kind"], each["metadata"]["name"]]) == image(each)

    def assert_ours(self) -> dict[tuple[str, str], Document]:
        """Everything is there that the chart installs, with our programs. Returns it."""
        self.assert_nothing_lost()
        # A hook of `helm test` is no part of the release.
        live = self.live([each for each in recorded("defaults") if each["kind"] != "Pod"])
        images = [image(each) for (kind, _), each in live.items() if kind in ("DaemonSet", "Deployment")]
        assert not [each for each in images if "koordinator-sh" in each]
        return live


def image(document: Document) -> str:
    (container,) = document["spec"]["template"]["spec"]["containers"]
    return str(container["image"])


@pytest.fixture(params=WITH_OBJECTS)
def release(request: pytest.FixtureRequest, empty: ControlPlane, tmp_path: Path) -> Release:
    return Release(empty, tmp_path, request.param)


def _facts(live: dict[tuple[str, str], Document]) -> tuple[int, str]:
    """The replicas and the log level of the scheduler."""
    spec = live["Deployment", "koord-scheduler"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    return spec["replicas"], container["args"][-1]


def test_an_upgrade_installs_everything_by_each_flag_and_a_rollback_brings_the_original_back(release: Release) -> None:
    gates = release.folder / "gates"
    gates.write_text("Recommender=true")
    host = "--set=imageRepositoryHost=registry.example/team"
    flags: dict[tuple[str, ...], tuple[int, str]] = {
        # Without a flag and a value, Helm takes what was set; with a value, the defaults of the chart.
        (): (3, "-v=2"),
        (host,): (2, "-v=2"),
        ("--reset-values", host): (2, "-v=2"),
        ("--reset-then-reuse-values", host): (3, "-v=2"),
        ("--reuse-values", release.values_file(_IMAGES)): (3, "-v=4"),
        ("--reuse-values", f"--set={_NO_IMAGES}"): (3, "-v=4"),
        ("--set=scheduler=null,manager.enabled=null,crds=null,webhookConfiguration.failurePolicy=null",): (2, "-v=2"),
        ('--set-json=scheduler={"replicas":4,"log":null}',): (4, "-v=2"),
        ("--set-string=scheduler.log.level=5",): (2, "-v=5"),
        ("--set-literal=scheduler.log.level=6",): (2, "-v=6"),
        (f"--set-file=featureGates={gates}",): (2, "-v=2"),
    }
    for each, expected in flags.items():
        release.upgrade(*each)
        assert _facts(release.assert_ours()) == expected, each
        release.roll_back()
        release.assert_original()
    release.upgrade("--reset-then-reuse-values")
    release.upgrade("--reuse-values")
    release.assert_ours()


def test_an_upgrade_whose_values_cannot_be_used_changes_nothing(release: Release) -> None:
    """As with those of the original, which have its images."""
    old = release.values_file(original_values(release.version))
    for flags, message in (
        (("--reuse-values",), "koordlet.image.repository: koordinator-sh/koordlet is an image of the Go original"),
        ((old,), "scheduler.image.repository: koordinator-sh/koord-scheduler is an image of the Go original"),
        (("--set=scheduler.replcas=3",), "scheduler.replcas: unknown value; did you mean scheduler.replicas?"),
        (("--set-string=manager.enabled=false",), "enabled"),
        (("--reuse-values", f"--set={_NO_IMAGES},kordlet.enabled=false"), "kordlet: unknown value"),
    ):
        assert message in release.refused(*flags)
        release.assert_original()


def _without_namespace(release: Release) -> None:
    release.upgrade("--set=installation.createNamespace=false")


def _elsewhere(release: Release) -> None:
    release.upgrade("--set=installation.namespace=elsewhere")


def _without_definitions(release: Release) -> None:
    release.upgrade("--set=crds.managed=false,crds.keep=false")


def _without_programs(release: Release) -> None:
    release.upgrade(f"--set={','.join(f'{program}.enabled=false' for program in _PROGRAMS)}")


def _by_replacing(release: Release) -> None:
    release.upgrade("--force")
    release.assert_ours()


def _failing(release: Release) -> None:
    release.refused("--wait", "--timeout=5s", "--cleanup-on-fail")


def _undone(release: Release) -> None:
    release.refused("--atomic", "--timeout=5s")
    release.assert_original()


@pytest.mark.parametrize(
    "change",
    [_without_namespace, _elsewhere, _without_definitions, _without_programs, _by_replacing, _failing, _undone],
    ids=lambda change: str(change.__name__.strip("_")),
)
def test_no_upgrade_deletes_what_users_have_made(change: Callable[[Release], None], release: Release) -> None:
    change(release)
    release.assert_nothing_lost()
    # The release before it has no mark on them any more that Helm would keep them by.
    change(release)
    release.assert_nothing_lost()
    release.roll_back()
    release.assert_nothing_lost()


def test_removing_a_release_leaves_what_users_have_made(release: Release) -> None:
    release.upgrade()
    release.helm("uninstall", _RELEASE)
    release.assert_nothing_lost()
