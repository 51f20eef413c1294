"""Which controllers there are, which run, and for which kinds nobody is warned that none do."""

from __future__ import annotations

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.cluster.controllers.main import chosen, main
from koordinator.cluster.controllers.table import CONTROLLERS
from koordinator.cluster.strategy.missing_controllers import CONTROLLED

_ALL = list(CONTROLLERS)
_OTHERS = [name for name in _ALL if name != "deployment-controller"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("*", _ALL),
        ("deployment-controller", ["deployment-controller"]),
        ("*,-deployment-controller", _OTHERS),
        ("-deployment-controller,*", _OTHERS),
        ("", []),
    ],
)
def test_controllers_are_chosen_as_in_kubernetes(text: str, names: list[str]) -> None:
    assert chosen(text) == names


def test_an_unknown_controller_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"nope.*deployment-controller, "):
        chosen("*,nope")


def test_a_wrong_flag_is_one_line_and_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--controllers=nope"]) == 1
    assert "--controllers: 'nope' is not usable" in capsys.readouterr().err


def test_every_controlled_kind_has_a_controller() -> None:
    """``deployments`` has the ``deployment-controller``."""
    assert {f"{plural[:-1]}-controller" for _, plural in CONTROLLED} <= set(CONTROLLERS)
