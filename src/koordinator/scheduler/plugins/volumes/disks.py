"""Disks that pods name themselves, and who may not use one together on a node."""

from __future__ import annotations

from collections.abc import Iterable

from koordinator.api.pod import Volume


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
