"""autoscaling/v1 Scale: how many replicas an object wants and has, read out of the object and written back into it."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.document import Document, copied
from koordinator.cluster.errors import ApiError, bad_request, invalid
from koordinator.cluster.resource import Column, Resource, ScalePaths
from koordinator.cluster.strategy import causes
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.table import AGE, NAME, integer, lookup, table

SCALE_KIND: Final = ("autoscaling", "v1", "Scale")
NO_REPLICAS: Final = -(2**31)
"""What an object that does not say how many it wants has on its way through a change, as in the real server: 0 is an
answer."""
_COLUMNS: Final = table(
    (Column("Name"), NAME[1]),
    integer("Desired", "spec.replicas"),
    integer("Available", "status.replicas"),
    AGE,
)
_SHOWN_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_NOT_NEGATIVE: Final = "must be greater than or equal to 0"
SCALE: Final = Resource(
    group=SCALE_KIND[0],
    version=SCALE_KIND[1],
    plural="scales",
    kind=SCALE_KIND[2],
    namespaced=True,
    strategy=ObjectStrategy("autoscaling/v1", "Scale", table=_COLUMNS),
)
"""The form of the response of ``…/NAME/scale``; nothing is stored as it."""


def scale_of(obj: Document, paths: ScalePaths) -> Document:
    """Raises ApiError 500 when a field of a custom resource holds something else than it should."""
    scale: Document = {
        "apiVersion": "autoscaling/v1",
        "kind": SCALE.kind,
        "metadata": {name: obj["metadata"][name] for name in _SHOWN_METADATA if name in obj["metadata"]},
        "spec": {"replicas": _number(obj, paths.replicas)},
        "status": {
            "replicas": _number(obj, paths.status_replicas),
            "selector": selector_text(lookup(obj, paths.selector)) if paths.selector else "",
        },
    }
    SCALE.strategy.decode(scale)
    return scale


def has_replicas(obj: Document, paths: ScalePaths) -> bool:
    return lookup(obj, paths.replicas) is not None


def check_scale(scale: Document, name: str, paths: ScalePaths, resource: Resource) -> None:
    """Raises ApiError 422 when there are less than no replicas."""
    replicas = scale["spec"].get("replicas") or 0
    if replicas >= 0:
        return
    if paths.custom:
        field = "." + ".".join(paths.replicas)
        raise invalid(resource, name, [causes.invalid(field, replicas, "should be a non-negative integer")])
    raise invalid(SCALE, name, [causes.invalid("spec.replicas", replicas, _NOT_NEGATIVE)])


def scaled(obj: Document, scale: Document, paths: ScalePaths) -> Document:
    """A copy with the replicas of ``scale``. Raises ApiError 500 when there is no place for them."""
    result: Document = copied(obj)
    place = result
    for name in paths.replicas[:-1]:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise _server_error(
                f"value cannot be set because .{'.'.join(paths.replicas)} is not a map[string]interface{{}}"
            )
    place[paths.replicas[-1]] = scale["spec"].get("replicas") or 0
    return result


def missing_replicas(paths: ScalePaths) -> ApiError:
    """For a GET of an object that does not say how many it wants."""
    why = f'the spec replicas field ".{".".join(paths.replicas)}" does not exist'
    return ApiError(500, "InternalError", f"Internal error occurred: {why}", {"causes": [{"message": why}]})


def empty_replicas(paths: ScalePaths) -> ApiError:
    """For a change that leaves it open."""
    return bad_request(f'the spec replicas field ".{".".join(paths.replicas)}" cannot be empty')


def selector_text(selector: Any) -> str:
    """A LabelSelector, plain labels or a text in the form of the ``labelSelector`` query parameter."""
    if not isinstance(selector, dict):
        return selector if isinstance(selector, str) else ""
    if not selector.keys() & {"matchLabels", "matchExpressions"}:
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    parts = [(key, f"{key}={value}") for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for requirement in selector.get("matchExpressions") or []:
        key, operator = requirement["key"], requirement["operator"]
        values = ",".join(sorted(requirement.get("values") or []))
        bare = {"Exists": key, "DoesNotExist": f"!{key}"}
        parts.append((key, bare.get(operator) or f"{key} {operator.lower()} ({values})"))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def _number(obj: Document, path: tuple[str, ...]) -> int:
    value = lookup(obj, path)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        kind = {str: "string", bool: "bool", float: "float64", list: "[]interface {}"}
        found = kind.get(type(value), "map[string]interface {}")
        raise _server_error(f".{'.'.join(path)} accessor error: {value} is of the type {found}, expected int64")
    return value


def _server_error(message: str) -> ApiError:
    return ApiError(500, "", message)
