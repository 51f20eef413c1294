"""When hook servers can be asked. The names are those of their configuration files."""

from __future__ import annotations

from enum import StrEnum


class HookPoint(StrEnum):
    """A moment around a call of the container runtime."""

    PRE_RUN_POD_SANDBOX = "PreRunPodSandbox"
    POST_STOP_POD_SANDBOX = "PostStopPodSandbox"
    PRE_CREATE_CONTAINER = "PreCreateContainer"
    PRE_START_CONTAINER = "PreStartContainer"
    POST_START_CONTAINER = "PostStartContainer"
    PRE_UPDATE_CONTAINER_RESOURCES = "PreUpdateContainerResources"
    POST_STOP_CONTAINER = "PostStopContainer"

    @property
    def method(self) -> str:
        """The gRPC method of hook servers."""
        return f"/runtime.v1alpha1.RuntimeHookService/{self.value}Hook"
