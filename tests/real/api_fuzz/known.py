"""The differences that are left, with their reasons: everything else that the fuzzer finds is a fault."""

from __future__ import annotations

import re
from typing import Final

from tests.real.api_fuzz.fuzzer import Difference

KNOWN: Final[tuple[tuple[str, str], ...]] = (
    ("ControllerRevision .*", "a patch writes the raw data anew, which the real server takes for a change"),
    ("CustomResourceDefinition .*", "schemas and names: the order of checks, and unknown members of a schema"),
    ("Job spec.*", "success policies are not counted against completions; selectors of Jobs are shown otherwise"),
    ("LimitRange spec.limits.*", "of several amounts that do not fit each other, the real server shows others"),
    ("ResourceSlice spec.devices.*", "attributes are shown otherwise"),
    ("ResourceClaim(Template)? spec.*devices.constraints.*", "an empty attribute is refused in other words"),
    ("PersistentVolumeClaim spec.*", "sizes of claims without a volume are not compared with their status"),
    ("PersistentVolume spec.(capacity|nodeAffinity).*", "an empty capacity, and affinity of an update, in other words"),
    ("ResourceQuota spec.scopes.*", "scopes that are there twice count once on an update"),
    ("StatefulSet spec.(selector|volumeClaimTemplates|serviceName).*", "updates that are refused anyway say less"),
    ("(DaemonSet|Deployment) spec.*rollingUpdate.*", "a wrong share of pods is counted as one, or as none"),
    ("DaemonSet metadata.annotations.*", "the generation of the template is not parsed"),
    ("NetworkPolicy spec.*ports.*", "a last port behind a port that is a name"),
    ("Node spec.podCIDRs?.*", "blocks of addresses of one family may be several"),
    ("Pod spec.containers.*.resources.*", "LimitRanges are stored, but not enforced; amounts beyond 63 bits"),
    ("Pod spec.(overhead|runtimeClassName).*", "there are no RuntimeClasses"),
    ("Service spec.ports.*.nodePort", "a dry run of the real server does not look at the range"),
    ("Pod spec.serviceAccountName", "no account is filled in, so that its absence is no fault"),
    ("Pod spec.containers.*.ports.*", "names of ports are not compared with each other"),
    ("Pod spec.(activeDeadlineSeconds|terminationGracePeriodSeconds)", "two rules of an update in one"),
    ("Pod spec.volumes.*.name|Pod metadata.name", "the names of claims that ephemeral volumes make are not checked"),
    ("Pod metadata|Pod spec", "as for the fields in it"),
    ("(VolumeAttachment|StorageClass|Event|HorizontalPodAutoscaler) .*", "rare rules of updates"),
)
_COMPILED: Final = tuple(re.compile(place) for place, _ in KNOWN)


def is_known(difference: Difference) -> bool:
    """Whether the place is listed; a failure of the embedded API's own never is."""
    if difference.ours.code >= 500:
        return False
    return any(place.fullmatch(difference.place) for place in _COMPILED)
