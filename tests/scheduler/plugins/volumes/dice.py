"""Random claims, volumes, nodes, pods and events, all from one number: clusters in which something is to be decided."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

from koordinator.api.meta import Object
from koordinator.api.node import Node
from koordinator.api.pod import AWSElasticBlockStoreVolumeSource, GCEPersistentDiskVolumeSource, Pod, Volume
from koordinator.api.volume import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
)
from tests.scheduler.plugins.volumes import reference, storage
from tests.scheduler.plugins.volumes.fixtures import ClusterFixture
from tests.scheduler.plugins.volumes.reference import BETA_ZONE, SELECTED, ZONE
from tests.scheduler.plugins.volumes.storage import DRIVER

T = TypeVar("T")
NODES, CLAIMS, VOLUMES = ["a", "b", "c"], ["c0", "c1", "c2", "p0-e"], ["v0", "v1", "v2", "v3"]
_IN_ZONE_1 = TopologySelectorTerm(match_label_expressions=[TopologySelectorLabelRequirement(key=ZONE, values=["z1"])])
_CLASSES = [
    storage.storage_class("wait"),
    storage.storage_class("static", provisioner="kubernetes.io/no-provisioner"),
    storage.storage_class("now", "Immediate"),
]
_GCE = GCEPersistentDiskVolumeSource(pd_name="x")
_READ_ONLY = GCEPersistentDiskVolumeSource(pd_name="x", read_only=True)
_DISKS = [
    Volume(name="d1", gce_persistent_disk=_GCE),
    Volume(name="d2", gce_persistent_disk=_READ_ONLY),
    Volume(name="d3", aws_elastic_block_store=AWSElasticBlockStoreVolumeSource(volume_id="vol-1")),
]
_STEPS = ("node", "csi", "place", "take", "claim", "claim", "volume", "volume", "gone", "class", "room", "attach")
_OTHERS = ["q0", "q1", "q2"]


class Dice:
    """Everything that a test leaves to chance."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._version = 1

    def pick(self, choices: Sequence[T]) -> T:
        return self._random.choice(choices)

    def rarely(self, one_in: int) -> bool:
        return self._random.randrange(one_in) == 0

    def fixture(self) -> ClusterFixture:
        """Nodes, classes, claims and volumes, but no pods yet."""
        fixture = ClusterFixture()
        for name in NODES:
            fixture.add(self.node(name), self.csi_node(name))
        fixture.add(*_CLASSES, *map(self.volume, VOLUMES), *map(self.claim, CLAIMS))
        return fixture

    def node(self, name: str) -> Node:
        keys = (ZONE, BETA_ZONE, "topology.ebs.csi.aws.com/zone")
        return storage.node(name, **{key: self.pick(["z1", "z2"]) for key in keys if self.rarely(2)})

    def csi_node(self, name: str) -> CSINode:
        limits = {each: self.pick([None, 0, 1, 2]) for each in (DRIVER, "ebs.csi.aws.com") if self.rarely(2)}
        return storage.csi_node(name, limits, migrated=self.pick(["", reference.AWS]))

    def claim(self, name: str) -> PersistentVolumeClaim:
        has_volume, is_broken = self.rarely(2), self.rarely(15)
        return storage.claim(
            name,
            self.pick(VOLUMES) if has_volume else "",
            self.pick([None, "1Gi", "2Gi"]),
            of=self._class(),
            modes=self._modes(),
            annotations={SELECTED: "a"} if self.rarely(6) else {},
            bound=has_volume and not is_broken,
            deleting=is_broken and self.rarely(2),
            phase="Lost" if is_broken and self.rarely(2) else "Bound" if has_volume else "Pending",
            owner="p0" if name == "p0-e" and not is_broken else "",
            version=self._next_version(),
        )

    def volume(self, name: str) -> PersistentVolume:
        places: Sequence[dict[str, Any]] = ({}, {"on": "a"}, {"on": "b"}, {"zone": "z1"})
        aws = AWSElasticBlockStoreVolumeSource(volume_id=self.pick(["vol-1", "vol-2"]))
        sources: Sequence[dict[str, Any]] = ({}, {"csi": storage.csi("h1")}, {"csi": storage.csi(name)}, {"aws": aws})
        return storage.volume(
            name,
            self.pick(["1Gi", "2Gi"]),
            of=self._class(),
            modes=self._modes(),
            to=self.pick(["", "", "", "c0", "c1"]),
            uid=self.pick(["", "uid-c0"]),
            phase=self.pick(["Available", "Available", "Available", "Bound"]),
            labels=self.pick([{}, {ZONE: "z1"}, {BETA_ZONE: "z1__z2"}, {BETA_ZONE: "z1"}, {ZONE: "z1__"}]),
            deleting=self.rarely(10),
            version=self._next_version(),
            **self.pick(places),
            **self.pick(sources),
        )

    def pod(self, name: str, on: str = "") -> Pod:
        wanted = self.pick([["c0"], ["c1"], ["c0", "c1"], ["c2"], ["c1", "c2"], ["p0-e"], []])
        disks = [self.pick(_DISKS)] if self.rarely(4) else []
        return storage.pod(name, *wanted, volumes=disks, ephemeral=["e"] if self.rarely(8) else [], on=on)

    def happen(self, fixture: ClusterFixture) -> None:
        """One event."""
        kind, name = self.pick(_STEPS), self.pick(NODES)
        if kind == "node":
            fixture.add(self.node(name))
        elif kind == "csi":
            fixture.add(self.csi_node(name))
        elif kind == "place":
            pod = self.pod(self.pick(_OTHERS), on=name)
            fixture.remove(pod)
            fixture.add(pod)
        elif kind == "take":
            fixture.remove(storage.pod(self.pick(_OTHERS)))
        elif kind == "claim":
            fixture.add(self.claim(self.pick(CLAIMS)))
        elif kind == "volume":
            fixture.add(self.volume(self.pick(VOLUMES)))
        elif kind == "gone":
            fixture.remove(self.pick(_gone(name)))
        elif kind == "class":
            fixture.add(storage.storage_class("wait", allowed=self.pick([[], [_IN_ZONE_1]])))
            fixture.add(storage.driver(counts_capacity=self.rarely(2)))
        elif kind == "room":
            fixture.add(storage.capacity("r", name, self.pick(["1Gi", "2Gi"])))
        else:
            fixture.add(storage.attachment(self.pick(["x", "y"]), name, self.pick(VOLUMES)))

    def _class(self) -> str:
        return self.pick(["wait", "wait", "static", "static", "wait", "static", "now"])

    def _modes(self) -> list[str]:
        return self.pick(
            [["ReadWriteOnce"], ["ReadWriteOnce"], ["ReadWriteOncePod"], ["ReadOnlyMany", "ReadWriteOnce"]]
        )

    def _next_version(self) -> str:
        """Each version of an object bears a number of its own, as in the API."""
        self._version += 1
        return str(self._version)


def _gone(name: str) -> Sequence[Object]:
    return (
        storage.node(name),
        storage.csi_node(name),
        storage.claim("c0"),
        storage.volume("v0"),
        storage.volume("v1"),
        storage.capacity("r", name, "1Gi"),
        storage.attachment("x", name, "v0"),
    )
