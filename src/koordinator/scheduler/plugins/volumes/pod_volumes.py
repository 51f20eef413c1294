"""The volumes of a pod, read from its spec once: claims by key, and disks that it names itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod, Volume
from koordinator.api.volume import PersistentVolumeClaim
from koordinator.scheduler.engine.pod_info import PodInfo

_MEMO: Final = "volumes"
_UNREAD: Final = object()


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A volume of the pod that is a claim's."""

    claim: str
    """The claim's name."""
    key: str
    """``namespace/name``."""
    ephemeral: bool
    """Made for this pod from a template in it, so it must be the claim's owner."""


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """The volumes that scheduling has to care for."""

    namespace: str
    pod: str
    uid: str
    claims: tuple[ClaimUse, ...]
    disks: tuple[Volume, ...]
    """Those that name a disk of a cloud or of the network, which no two pods may use in some ways."""
    in_tree: tuple[Volume, ...]
    """Those of in-tree plugins whose work CSI drivers have taken over; some are ``disks``, too."""

    def owns(self, claim: PersistentVolumeClaim) -> bool:
        """Whether the claim was made for this pod."""
        controller = controller_of(claim.metadata)
        return controller is not None and controller.uid == self.uid and claim.metadata.namespace == self.namespace

    @property
    def named(self) -> list[ClaimUse]:
        """The claims that the pod names, without those that are made for it."""
        return [use for use in self.claims if not use.ephemeral]

    def uses(self, claim: PersistentVolumeClaim) -> bool:
        """Whether the claim is one of the pod's."""
        return any(use.key == claim.metadata.key for use in self.claims)

    def disowned(self, claim: PersistentVolumeClaim) -> str:
        """What is said about a claim of the right name that the pod does not own."""
        of_pod = f"{self.namespace}/{self.pod}"
        return f"PVC {claim.metadata.key} was not created for pod {of_pod} (pod is not owner)"


def volumes_of(pod: PodInfo) -> PodVolumes | None:
    """The volumes of a pod that waits; None, for most pods, when there are none to care for."""
    found = pod.memo.get(_MEMO, _UNREAD)
    if found is _UNREAD:
        found = pod.memo[_MEMO] = read_volumes(pod.pod)
    return found  # type: ignore[no-any-return]  # the memo holds anything


def known_volumes(pod: PodInfo) -> PodVolumes | None:
    """As ``volumes_of``, without remembering anything: for the many pods that run."""
    found = pod.memo.get(_MEMO, _UNREAD)
    return read_volumes(pod.pod) if found is _UNREAD else found


def read_volumes(pod: Pod) -> PodVolumes | None:
    """The volumes of a pod; None when there are none to care for."""
    metadata, volumes = pod.metadata, pod.spec.volumes
    for volume in volumes:
        # For every volume of every pod that comes to a node.
        if any(_matter(volume)):
            break
    else:
        return None
    return PodVolumes(
        namespace=metadata.namespace,
        pod=metadata.name,
        uid=metadata.uid,
        claims=tuple(use for volume in volumes if (use := _claim_use(pod, volume)) is not None),
        disks=tuple(volume for volume in volumes if any(_disks(volume))),
        in_tree=tuple(volume for volume in volumes if any(_in_tree(volume))),
    )


def _claim_use(pod: Pod, volume: Volume) -> ClaimUse | None:
    if volume.persistent_volume_claim is not None:
        name = volume.persistent_volume_claim.claim_name
    elif volume.ephemeral is not None:
        name = f"{pod.metadata.name}-{volume.name}"
    else:
        return None
    return ClaimUse(name, f"{pod.metadata.namespace}/{name}", volume.persistent_volume_claim is None)


_DISKS: Final = ("gce_persistent_disk", "aws_elastic_block_store", "iscsi", "rbd")
_IN_TREE: Final = ("gce_persistent_disk", "aws_elastic_block_store", "azure_disk", "cinder", "portworx_volume")
"""Those of which a CSI driver may do the work."""
_disks, _in_tree = attrgetter(*_DISKS), attrgetter(*_IN_TREE)
_matter = attrgetter("persistent_volume_claim", "ephemeral", *{*_DISKS, *_IN_TREE})


def conflict(mine: Iterable[Volume], theirs: Iterable[Volume]) -> bool:
    """Whether two pods with these disks cannot be on one node."""
    others = tuple(theirs)
    return any(_same_disk(disk, other) for disk in mine for other in others)


def _same_disk(a: Volume, b: Volume) -> bool:
    """Whether the disks are one that cannot be mounted twice; most kinds can if all mounts only read."""
    gce, other_gce = a.gce_persistent_disk, b.gce_persistent_disk
    if gce and other_gce and gce.pd_name == other_gce.pd_name and not (gce.read_only and other_gce.read_only):
        return True
    aws, other_aws = a.aws_elastic_block_store, b.aws_elastic_block_store
    if aws and other_aws and aws.volume_id == other_aws.volume_id:
        return True
    iscsi, other_iscsi = a.iscsi, b.iscsi
    if iscsi and other_iscsi and iscsi.iqn == other_iscsi.iqn and not (iscsi.read_only and other_iscsi.read_only):
        return True
    rbd, other_rbd = a.rbd, b.rbd
    if not (rbd and other_rbd) or (rbd.read_only and other_rbd.read_only):
        return False
    shared = not set(rbd.monitors).isdisjoint(other_rbd.monitors)
    return shared and (rbd.pool, rbd.image) == (other_rbd.pool, other_rbd.image)
