"""The differences that are left, with their reasons: everything else that the fuzzer finds is a fault."""

from __future__ import annotations

import re
from typing import Final

from tests.real.api_fuzz.fuzzer import Difference

KNOWN: Final[tuple[tuple[str, str], ...]] = (
    (r"ControllerRevision data\..*", "a member that is there twice in raw data is found, and the last one counts"),
    (r"PersistentVolume spec\.nodeAffinity\..*\.key", "an empty key is refused, and then as a change, too"),
    (r"Pod spec\.containers\[\]\.resources\..*", "amounts of more than 63 bits are not whole numbers"),
    (r"Pod spec\.activeDeadlineSeconds", "two rules of an update in one"),
    (r"Pod spec\.serviceAccountName", "no account is filled in, so that its absence is no fault"),
    (
        r"CustomResourceDefinition .*\.openAPIV3Schema\.properties\..*",
        "a null in a list that a strategic merge patch replaces is dropped",
    ),
    (r"LimitRange spec\.limits\[\]\.\w+\.\w+", "a null in a list that a strategic merge patch replaces is dropped"),
    (
        r"ResourceSlice spec\.devices\[\]\.(attributes|capacity)\.\w+",
        "a null in a list that a strategic merge patch replaces is dropped",
    ),
    (r"Namespace status\.phase", "is stored as it is sent"),
    (r"PodDisruptionBudget status\.conditions(\[\])?(\..*)?", "conditions are stored as they are sent"),
    (r"(Service|Ingress) status\.loadBalancer\..*", "addresses and their modes are stored as they are sent"),
    (r"Service spec\.ports", "the real server gives node ports to equal ports before it refuses them"),
    (r"Service spec\.ports\[\]\.nodePort", "a dry run of the real server does not look at the range"),
)
_COMPILED: Final = tuple(re.compile(place) for place, _ in KNOWN)


def is_known(difference: Difference) -> bool:
    """Whether the place is listed; a failure of the embedded API's own never is."""
    if difference.ours.code >= 500:
        return False
    return any(place.fullmatch(difference.place) for place in _COMPILED)
