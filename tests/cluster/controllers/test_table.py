"""Which workload controllers there are, and for which kinds nobody is warned that none do."""

from __future__ import annotations

import pytest

from koordinator.cluster.controllers.main import main
from koordinator.cluster.controllers.table import CONTROLLERS
from koordinator.cluster.strategy.missing_controllers import CONTROLLED


def test_an_unknown_controller_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--controllers=*,-nope"])
    assert "'-nope' names nothing: known are deployment-controller, " in capsys.readouterr().err


_OTHER_NAMES = {
    "persistentvolumeclaims": "persistentvolume-binder-controller",
    "services": "endpointslice-controller",
    "horizontalpodautoscalers": "horizontal-pod-autoscaler-controller",
}


def test_every_controlled_kind_has_a_controller() -> None:
    """``deployments`` has the ``deployment-controller``."""
    names = {_OTHER_NAMES.get(plural, f"{plural[:-1]}-controller") for _, plural in CONTROLLED}
    assert names <= set(CONTROLLERS)
