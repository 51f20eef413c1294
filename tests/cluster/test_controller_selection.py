"""Which controllers a list of names selects."""

from __future__ import annotations

import argparse

import pytest

from koordinator.cluster.controller_selection import selected

_ALL = ("garbage-collector-controller", "disruption-controller", "job-controller")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("*", _ALL),
        ("", ()),
        ("*,-garbage-collector-controller", _ALL[1:]),
        ("-garbage-collector-controller, *", _ALL[1:]),
        ("job-controller", ("job-controller",)),
        ("-job-controller", ()),
    ],
)
def test_controllers_are_selected_as_by_kube_controller_manager(text: str, names: tuple[str, ...]) -> None:
    assert selected(text, _ALL) == names


def test_a_controller_that_does_not_exist_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="'-nope' names nothing: known are garbage-"):
        selected("*,-nope", _ALL)
