"""Pods and PodGroups of gangs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod, PodSchedulingGate
from koordinator.api.pod_group import PodGroup, PodGroupSpec
from tests.scheduler.fakes import make_pod

GANG = "gang.scheduling.koordinator.sh"
POD_GROUP = "pod-group.scheduling.sigs.k8s.io"


def gang_annotations(
    name: str, minimum: int | str = 1, *, together: Sequence[str] = (), **others: str
) -> dict[str, str]:
    """``others`` without their prefix, with underscores."""
    found = {f"{GANG}/name": name, f"{GANG}/min-available": str(minimum)}
    if together:
        found[f"{GANG}/groups"] = json.dumps([f"default/{each}" for each in together])
    return {**found, **{f"{GANG}/{key.replace('_', '-')}": value for key, value in others.items()}}


def member(
    gang: str,
    number: int,
    minimum: int | str = 1,
    *,
    gated: bool = False,
    cpu: str = "1",
    together: Sequence[str] = (),
    **annotations: Any,
) -> Pod:
    """Pod ``gang-number`` of a gang that is declared by annotations."""
    pod = make_pod(f"{gang}-{number}", cpu=cpu)
    pod = with_annotations(pod, gang_annotations(gang, minimum, together=together, **annotations))
    if gated:
        gates = (PodSchedulingGate(name="example.com/later"),)
        return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduling_gates=gates))
    return pod


def labelled(gang: str, number: int, cpu: str = "1") -> Pod:
    """Pod ``gang-number`` of the gang of a PodGroup."""
    return make_pod(f"{gang}-{number}", cpu=cpu, labels={POD_GROUP: gang})


def with_annotations(pod: Pod, annotations: dict[str, str]) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))


def pod_group(name: str, minimum: int, timeout: int | None = None, **annotations: str) -> PodGroup:
    found = {f"{GANG}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return PodGroup(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"group-{name}", annotations=found),
        spec=PodGroupSpec(min_member=minimum, schedule_timeout_seconds=timeout),
    )
