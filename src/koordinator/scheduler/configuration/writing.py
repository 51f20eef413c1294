"""The configuration as a file that means the same and leaves nothing to defaults (``--write-config-to``).

Each point is spelled out and multiPoint emptied, so that Go programs that read the file expand it to the same lists.
"""

from __future__ import annotations

from typing import Any

import yaml

from koordinator.api.component_configuration import plain_document
from koordinator.scheduler.configuration.argument_kinds import ARGUMENT_KINDS, VERSION, make_arguments
from koordinator.scheduler.configuration.points import POINTS
from koordinator.scheduler.configuration.resolved import ProfileConfiguration, SchedulerConfiguration


def write_configuration(configuration: SchedulerConfiguration) -> str:
    """YAML that ``parse_configuration`` reads back to the same profiles and settings."""
    document = plain_document(configuration.document)
    document["profiles"] = [_profile(profile) for profile in configuration.profiles]
    return yaml.safe_dump(document, sort_keys=False)


def _profile(profile: ProfileConfiguration) -> dict[str, Any]:
    at_points = {point: _enabled(profile, point) for point in POINTS}
    listed = {entry["name"] for entries in at_points.values() for entry in entries}
    elsewhere = [name for name in profile.plugins if name not in listed]
    return {
        "schedulerName": profile.scheduler_name,
        "plugins": {
            **{point: {"enabled": entries, "disabled": _all()} for point, entries in at_points.items()},
            "multiPoint": {"enabled": [{"name": name} for name in elsewhere], "disabled": _all()},
        },
        "pluginConfig": [
            {"name": name, "args": {**plain_document(args), **_type_meta(name)}}
            for name, args in profile.arguments.items()
            if name in profile.plugins or name not in ARGUMENT_KINDS or args != make_arguments(name, {}, name)
        ],
    }


def _type_meta(name: str) -> dict[str, str]:
    # Arguments of a plugin of another package are of no kind that this group knows.
    return {"apiVersion": VERSION, "kind": f"{name}Args"} if name in ARGUMENT_KINDS else {}


def _all() -> list[dict[str, str]]:
    # A list of its own for each place, or YAML would write anchors.
    return [{"name": "*"}]


def _enabled(profile: ProfileConfiguration, point: str) -> list[dict[str, Any]]:
    order = profile.order
    if point == "score":
        return [{"name": name, "weight": weight} for name, weight in order.score]
    names = getattr(order, "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in point))
    return [{"name": name} for name in names]
