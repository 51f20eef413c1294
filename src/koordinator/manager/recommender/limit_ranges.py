"""What the LimitRanges of a namespace allow a container: a pod that requests more is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from koordinator.api.kinds import Kind
from koordinator.api.meta import Object, WireStruct
from koordinator.api.pod import ResourceList
from koordinator.kube.informer_set import InformerSet
from koordinator.model.container_sizes import Bounds, amount_of

_BY_NAMESPACE: Final = "namespace"
_CONTAINER: Final = "Container"


class _Item(WireStruct):
    type: str = ""
    min: ResourceList = {}
    max: ResourceList = {}
    max_limit_request_ratio: ResourceList = {}


class _Spec(WireStruct):
    limits: Sequence[_Item] = ()


class LimitRange(Object):
    """core/v1 LimitRange, without its defaults: the API server has applied these before a webhook sees the pod."""

    spec: _Spec = _Spec()


LIMIT_RANGES: Final = Kind("", "v1", "limitranges", "LimitRange", LimitRange)


class LimitRangeLister:
    """Over an informer, of one namespace or of all. Those of the type Pod are left to the API server."""

    def __init__(self, informers: InformerSet, namespace: str) -> None:
        self._informer = informers.informer(LIMIT_RANGES, namespace=namespace, indexes={_BY_NAMESPACE: _namespace})

    def bounds_of(self, namespace: str) -> Mapping[str, Bounds]:
        """Resource name -> the tightest bounds: CPU in milli-cores, everything else in units."""
        return tightest(self._informer.by_index(_BY_NAMESPACE, namespace))


def tightest(limit_ranges: Iterable[LimitRange]) -> Mapping[str, Bounds]:
    """The bounds of all of these LimitRanges together."""
    found = dict[str, Bounds]()
    for limit_range in limit_ranges:
        for item in limit_range.spec.limits:
            if item.type != _CONTAINER:
                continue
            for name in item.min.keys() | item.max.keys() | item.max_limit_request_ratio.keys():
                known = found.get(name, Bounds())
                low, high = (
                    amount_of(name, amounts[name]) if name in amounts else None for amounts in (item.min, item.max)
                )
                ratio = item.max_limit_request_ratio.get(name)
                found[name] = Bounds(
                    _tighter(known.minimum, low, max),
                    _tighter(known.maximum, high, min),
                    _tighter(known.ratio, ratio.milli if ratio is not None else None, min),
                )
    return found


def _namespace(limit_range: LimitRange) -> tuple[str, ...]:
    return (limit_range.metadata.namespace,)


def _tighter(known: int | None, other: int | None, choose: Callable[[int, int], int]) -> int | None:
    if known is None or other is None:
        return other if known is None else known
    return choose(known, other)
