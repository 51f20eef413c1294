"""Checks that the network shares guaranteed to classes of pods can be provided.

A share is a percentage (a number) or an amount (a quantity, bits per second), and within a strategy all requests must
be of one kind. Percentages must not sum up to more than 100, amounts not to more than the bandwidth of the same nodes
in the system key, as far as that is known (pkg/webhook/cm/plugins/sloconfig/resource_qos_checker.go).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from koordinator.api.field_error import FieldError
from koordinator.api.quantity import Quantity, QuantityError, parse_quantity
from koordinator.api.resource_qos import NetworkQoS, ResourceQoSStrategy
from koordinator.api.system_strategy import SystemStrategy
from koordinator.model.slo_configuration import configuration_keys as keys
from koordinator.model.slo_configuration.refusal import RefusedConfigurationError
from koordinator.model.slo_configuration.written_configuration import (
    WrittenConfiguration,
    WrittenNodeStrategy,
    merged_cluster,
    merged_node,
)

_Value = int | str
_OUT_OF_RANGE: Final = "must be percentage value just in 0-100'"
_NO_QUANTITY: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_NEGATIVE: Final = "must be 0 or greater"


def check_network_bandwidth(
    qos: WrittenConfiguration[ResourceQoSStrategy], system: WrittenConfiguration[SystemStrategy]
) -> None:
    """Raises RefusedConfigurationError for the first error, in plain words."""
    _check_values(qos.cluster.values, "ResourceQOSCfg.ClusterStrategy")
    for position, node in enumerate(qos.nodes):
        _check_values(node.given.values, f"ResourceQOSCfg.nodeStrategy.{position}")
    cluster = merged_cluster(qos, keys.RESOURCE_QOS)
    nodes = [merged_node(node, cluster, keys.RESOURCE_QOS) for node in qos.nodes]
    if not _of_one_kind(cluster):
        raise _refused("only one type can be used for percentages or quantity in clusterStrategy")
    for position, strategy in enumerate(nodes):
        if not _of_one_kind(strategy):
            raise _refused(f"only one type can be used for percentages or quantity in nodeStrategy[{position}]")
    _check_percentages(cluster, nodes)
    _check_quantities(cluster, nodes, qos, system)


def _check_values(strategy: ResourceQoSStrategy, path: str) -> None:
    for name, network in _networks(strategy):
        values = (
            ("IngressRequest", network.ingress_request),
            ("IngressLimit", network.ingress_limit),
            ("EgressRequest", network.egress_request),
            ("EgressLimit", network.egress_limit),
        )
        for field, value in values:
            if value is not None:
                _check_value(value, f"{path}.{name}.{field}")


def _check_value(value: _Value, path: str) -> None:
    allowed = ""
    if isinstance(value, int):
        allowed = "" if 0 <= value <= 100 else _OUT_OF_RANGE
    else:
        try:
            allowed = "" if parse_quantity(value).nanos >= 0 else _NEGATIVE
        except QuantityError:
            allowed = _NO_QUANTITY
    if allowed:
        raise _refused(str(FieldError.invalid(path, value, allowed)))


def _check_percentages(cluster: ResourceQoSStrategy, nodes: list[ResourceQoSStrategy]) -> None:
    if any(total > 100 for total in _percentages(cluster)):
        raise _refused("ClusterStrategy total net bandwidth percentage already over 100")
    for position, strategy in enumerate(nodes):
        if any(total > 100 for total in _percentages(strategy)):
            raise _refused(f"cfg.NodeStrategies[{position}] total net bandwidth percentage already over 100")


def _check_quantities(
    cluster: ResourceQoSStrategy,
    nodes: list[ResourceQoSStrategy],
    qos: WrittenConfiguration[ResourceQoSStrategy],
    system: WrittenConfiguration[SystemStrategy],
) -> None:
    system_cluster = merged_cluster(system, keys.SYSTEM)
    if _is_over(cluster, system_cluster.total_network_bandwidth):
        raise _refused("total net bandwidth over total network bandwidth in clusterStrategy")
    for position, (entry, strategy) in enumerate(zip(qos.nodes, nodes, strict=True)):
        if _is_over(strategy, _total_bandwidth(entry, system_cluster, system)):
            raise _refused(
                f"total net bandwidth quantity already over total network bandwidth in cfg.NodeStrategies[{position}]"
            )


def _total_bandwidth(
    entry: WrittenNodeStrategy[ResourceQoSStrategy],
    cluster: SystemStrategy,
    system: WrittenConfiguration[SystemStrategy],
) -> Quantity:
    """The bandwidth of the nodes that ``entry`` selects, if a system strategy has an equal selector; else the
    cluster's."""
    for node in system.nodes:
        if node.selector == entry.selector:
            return merged_node(node, cluster, keys.SYSTEM).total_network_bandwidth
    return cluster.total_network_bandwidth


def _is_over(strategy: ResourceQoSStrategy, total: Quantity) -> bool:
    """A total of zero counts as unknown: nodes may set their own."""
    return total.nanos > 0 and any(amount > total.nanos for amount in _amounts(strategy))


def _percentages(strategy: ResourceQoSStrategy) -> tuple[int, int]:
    """Sums of what is requested in percent: ingress, egress."""
    ingress, egress = _requests(strategy)
    return sum(each for each in ingress if isinstance(each, int)), sum(each for each in egress if isinstance(each, int))


def _amounts(strategy: ResourceQoSStrategy) -> tuple[int, int]:
    """Sums of what is requested as amounts, in nanos: ingress, egress."""
    ingress, egress = _requests(strategy)
    return _sum_of_amounts(ingress), _sum_of_amounts(egress)


def _sum_of_amounts(values: list[_Value]) -> int:
    return sum(parse_quantity(each).nanos for each in values if isinstance(each, str))


def _of_one_kind(strategy: ResourceQoSStrategy) -> bool:
    ingress, egress = _requests(strategy)
    return len({isinstance(each, int) for each in [*ingress, *egress]}) <= 1


def _requests(strategy: ResourceQoSStrategy) -> tuple[list[_Value], list[_Value]]:
    networks = [network for _, network in _networks(strategy)]
    ingress = [network.ingress_request for network in networks if network.ingress_request is not None]
    egress = [network.egress_request for network in networks if network.egress_request is not None]
    return ingress, egress


def _networks(strategy: ResourceQoSStrategy) -> Iterator[tuple[str, NetworkQoS]]:
    """Of the classes between which bandwidth is shared."""
    classes = (("LSRClass", strategy.lsr_class), ("LSClass", strategy.ls_class), ("BEClass", strategy.be_class))
    for name, qos in classes:
        if qos is not None and qos.network_qos is not None:
            yield name, qos.network_qos


def _refused(text: str) -> RefusedConfigurationError:
    return RefusedConfigurationError(text)
