"""Which pods use which claims."""

from __future__ import annotations

from typing import Final

from koordinator.api.pod import Pod

CLAIM_INDEX: Final = "claims"
"""Of an informer of pods: those that use each claim."""


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """Index function for ``CLAIM_INDEX``. A claim of a generic ephemeral volume has the names of the pod and of the
    volume."""
    namespace, keys = pod.metadata.namespace, []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            keys.append(f"{namespace}/{volume.persistent_volume_claim.claim_name}")
        elif volume.ephemeral is not None:
            keys.append(f"{namespace}/{pod.metadata.name}-{volume.name}")
    return tuple(keys)
