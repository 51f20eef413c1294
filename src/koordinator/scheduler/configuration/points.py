"""The plugins that exist, upstream's and Koordinator's, and the extension points that each implements.

Plugins that are not implemented yet are included, so that a profile that names one is distinguished from one with a
misspelt name. Facts from Kubernetes 1.35 (pkg/scheduler/framework/plugins) and Koordinator 1.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from koordinator.api.strict_decoding import decode_strictly
from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration import koordinator_arguments as koordinator
from koordinator.scheduler.configuration import upstream_arguments as upstream
from koordinator.scheduler.configuration.third_party import InstalledPlugins, ThirdPartyPlugin

FIELDS: Final = {
    point: "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in point)
    for point in (
        "preEnqueue",
        "queueSort",
        "preFilter",
        "filter",
        "postFilter",
        "preScore",
        "score",
        "reserve",
        "permit",
        "preBind",
        "bind",
        "postBind",
    )
}
"""The fields of the extension points in Python, by their names in the configuration."""
DEFAULT_PLUGINS: Final[tuple[tuple[str, int], ...]] = (
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
)
"""Upstream's multiPoint list with weights."""


def _points(text: str) -> frozenset[str]:
    return frozenset(text.split())


KNOWN_PLUGINS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "SchedulingGates": _points("preEnqueue"),
        "PrioritySort": _points("queueSort"),
        "NodeUnschedulable": _points("filter"),
        "NodeName": _points("filter"),
        "TaintToleration": _points("filter preScore score"),
        "NodeAffinity": _points("preFilter filter preScore score"),
        "NodePorts": _points("preFilter filter"),
        "NodeResourcesFit": _points("preFilter filter preScore score"),
        "VolumeRestrictions": _points("preFilter filter"),
        "NodeVolumeLimits": _points("preFilter filter"),
        "VolumeBinding": _points("preFilter filter preScore score reserve preBind"),
        "VolumeZone": _points("preFilter filter"),
        "PodTopologySpread": _points("preFilter filter preScore score"),
        "InterPodAffinity": _points("preFilter filter preScore score"),
        "DynamicResources": _points("preEnqueue preFilter filter postFilter score reserve preBind"),
        "DefaultPreemption": _points("preEnqueue postFilter"),
        "NodeResourcesBalancedAllocation": _points("preScore score"),
        "ImageLocality": _points("score"),
        "DefaultBinder": _points("bind"),
        "GangScheduling": _points("preEnqueue reserve permit"),
        "NodeDeclaredFeatures": _points("preFilter filter"),
        "Coscheduling": _points("preEnqueue preFilter postFilter preScore score reserve permit preBind postBind"),
        "Reservation": _points("preFilter filter postFilter preScore score reserve preBind bind"),
        "NodeNUMAResource": _points("preFilter filter preScore score reserve preBind"),
        "DeviceShare": _points("preFilter filter preScore score reserve preBind"),
        "ElasticQuota": _points("preFilter postFilter reserve"),
        "LoadAwareScheduling": _points("preFilter filter score reserve"),
        "SchedulingHint": _points("preFilter"),
        "NodeResourcesFitPlus": _points("preScore score"),
        "ScarceResourceAvoidance": _points("preScore score"),
        "DefaultPreBind": _points("preBind"),
    }
)
_GROUP: Final = "kubescheduler.config.k8s.io"
VERSION: Final = f"{_GROUP}/v1"
OLD_VERSIONS: Final = (f"{_GROUP}/v1beta2", f"{_GROUP}/v1beta3")
ARGUMENT_KINDS: Final[Mapping[str, type[upstream.Arguments]]] = MappingProxyType(
    {
        kind.__name__.removesuffix("Args"): kind
        for kind in (
            upstream.NodeAffinityArgs,
            upstream.NodeResourcesFitArgs,
            upstream.NodeResourcesBalancedAllocationArgs,
            upstream.VolumeBindingArgs,
            upstream.PodTopologySpreadArgs,
            upstream.InterPodAffinityArgs,
            upstream.DynamicResourcesArgs,
            upstream.DefaultPreemptionArgs,
            koordinator.LoadAwareSchedulingArgs,
            koordinator.NodeNUMAResourceArgs,
            koordinator.DeviceShareArgs,
            koordinator.ReservationArgs,
            koordinator.ElasticQuotaArgs,
            koordinator.CoschedulingArgs,
            koordinator.NodeResourcesFitPlusArgs,
            koordinator.ScarceResourceAvoidanceArgs,
            koordinator.SchedulingHintArgs,
        )
    }
)
"""The arguments of each plugin that takes some, by its name."""


def make_arguments(name: str, document: Mapping[str, Any], path: str) -> upstream.Arguments:
    """The arguments of the plugin ``name`` with defaults. Raises ConfigurationError.

    The type meta may be omitted; if given, it must be right.
    """
    if name not in ARGUMENT_KINDS:
        raise ConfigurationError(path, dict(document), f"none: {name} takes no arguments")
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind not in (None, "", f"{name}Args"):
        raise ConfigurationError(f"{path}.kind", kind, f"{name}Args")
    if version not in (None, "", VERSION, *OLD_VERSIONS):
        raise ConfigurationError(f"{path}.apiVersion", version, VERSION)
    without_type = {field: value for field, value in document.items() if field not in ("kind", "apiVersion")}
    return decode_strictly(without_type, ARGUMENT_KINDS[name], path).completed(path)


class Catalogue:
    """All plugins by name. Plugins of other packages are loaded only for names that are not built in."""

    def __init__(self, installed: InstalledPlugins | None = None) -> None:
        self._installed = installed or InstalledPlugins()

    @property
    def third_party(self) -> Mapping[str, ThirdPartyPlugin]:
        """The plugins of other packages that were loaded so far, by name."""
        return self._installed.loaded

    def __contains__(self, name: str) -> bool:
        return name in KNOWN_PLUGINS or name in self._installed.names

    def points_of(self, name: str, where: str) -> frozenset[str]:
        """The points that the plugin implements. Raises ConfigurationError with the path ``where``."""
        if name in KNOWN_PLUGINS:
            self._installed.check_not_taken(name, where)
            return KNOWN_PLUGINS[name]
        return self._third_party(name, where).points

    def make_arguments(self, name: str, document: Mapping[str, Any], path: str) -> Any:
        """The arguments of a plugin with defaults. Raises ConfigurationError with a path below ``path``."""
        if name in KNOWN_PLUGINS:
            return make_arguments(name, document, path)
        return self._third_party(name, path).make_arguments(document, path)

    def _third_party(self, name: str, where: str) -> ThirdPartyPlugin:
        if name not in self._installed.names:
            known = ", ".join((*KNOWN_PLUGINS, *self._installed.names))
            raise ConfigurationError(where, name, f"no such plugin; there are {known}")
        return self._installed.load(name, where)
