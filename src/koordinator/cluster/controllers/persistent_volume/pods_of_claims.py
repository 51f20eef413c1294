"""Which pods use which claims."""

from __future__ import annotations

from typing import Final

from koordinator.api.pod import Pod, Volume

CLAIM_INDEX: Final = "claims"
"""Of an informer of pods: those that use each claim."""


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """Index function for ``CLAIM_INDEX``."""
    namespace, keys = pod.metadata.namespace, []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            keys.append(f"{namespace}/{volume.persistent_volume_claim.claim_name}")
        elif volume.ephemeral is not None:
            keys.append(f"{namespace}/{ephemeral_claim_name(pod, volume)}")
    return tuple(keys)


def ephemeral_claim_name(pod: Pod, volume: Volume) -> str:
    """The name of the claim of a generic ephemeral volume."""
    return f"{pod.metadata.name}-{volume.name}"
