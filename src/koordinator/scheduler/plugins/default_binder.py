"""DefaultBinder and DefaultPreBind: names that profiles list; the binding itself is the scheduler's own request."""

from __future__ import annotations

from koordinator.scheduler.engine.framework import Plugin


class DefaultBinder(Plugin):
    """Binds by POST pods/NAME/binding, which the scheduler does for every profile."""

    name = "DefaultBinder"


class DefaultPreBind(Plugin):
    """Writes what PreBind plugins changed of the pod as one patch; none of the built plugins changes anything."""

    name = "DefaultPreBind"
