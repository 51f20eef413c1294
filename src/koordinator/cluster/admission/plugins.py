"""Which plugins there are."""

from __future__ import annotations

from typing import Final

from koordinator.cluster.admission.certificates import CertificateSubjectRestriction
from koordinator.cluster.admission.chain import AdmissionChain, NamespaceLifecycle, Plugin
from koordinator.cluster.admission.ingress_class import DefaultIngressClass
from koordinator.cluster.admission.limit_ranger import LimitRanger
from koordinator.cluster.admission.nodes import TaintNodesByCondition
from koordinator.cluster.admission.pod_security.plugin import PodSecurity
from koordinator.cluster.admission.pods import DefaultTolerationSeconds, PodTopologyLabels, Priority, RuntimeClass
from koordinator.cluster.admission.storage import (
    DefaultStorageClass,
    PersistentVolumeClaimResize,
    StorageObjectInUseProtection,
)

OF_OBJECTS: Final[tuple[Plugin, ...]] = (
    LimitRanger(),
    PodSecurity(),
    Priority(),
    DefaultTolerationSeconds(),
    DefaultStorageClass(),
    PersistentVolumeClaimResize(),
    RuntimeClass(),
    DefaultIngressClass(),
    PodTopologyLabels(),
    CertificateSubjectRestriction(),
)
"""Need nothing but the objects that are stored."""
WITH_CONTROLLERS: Final[tuple[Plugin, ...]] = (TaintNodesByCondition(), StorageObjectInUseProtection())
"""Add what a controller takes away again, and so run where that controller does."""


def admission_chain(*others: Plugin) -> AdmissionChain:
    """Of a server, with what it has beside the plugins that each has."""
    return AdmissionChain(NamespaceLifecycle(), *OF_OBJECTS, *others)
