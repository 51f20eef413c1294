"""Words as people type them: nothing is taken for what it only resembles, and the answer says what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.cli.explain_failure import UsageError
from koordinator.cli.explain_target import parse_target
from koordinator.cli.main import main, make_parser
from koordinator.cli.up import ports_of


def test_a_flag_that_is_only_the_beginning_of_one_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args(["up", "--node", "3"])
    assert ended.value.code == 2
    assert "koord up: error: unrecognized arguments: --node; did you mean --nodes?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("staus", "invalid choice: 'staus'; did you mean status?"),
        ("--verison", "unrecognized arguments: --verison; did you mean --version?"),
        ("what-if drian node-1", "invalid choice: 'drian'; did you mean drain?"),
        ("what-if drain node-1 --forc", "unrecognized arguments: --forc; did you mean --force?"),
        ("explain pod web --namspace=x", "unrecognized arguments: --namspace=x; did you mean --namespace?"),
        ("status -o jsno", "invalid choice: 'jsno'; did you mean json?"),
        ("up --only apiserver,shceduler", "did you mean scheduler?"),
        ("manifests --only descheduller", "did you mean descheduler?"),
    ],
)
def test_a_mistyped_word_is_answered_by_the_one_that_was_meant(
    words: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    assert hint in capsys.readouterr().err


def test_words_may_stand_among_the_flags() -> None:
    options = make_parser().parse_args(["explain", "pod", "-n", "shop", "web", "-o", "json"])
    assert (options.what, options.namespace, options.output) == (["pod", "web"], "shop", "json")


def test_a_mistyped_kind_is_answered_by_a_command_that_works() -> None:
    with pytest.raises(UsageError, match=r"did you mean pod\? koord explain pod web"):
        parse_target(["pd", "web"], None)


def test_a_wrong_configuration_of_the_scheduler_is_named_with_its_line_and_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n  - plugns: {}\n"
    (tmp_path / "scheduler.yaml").write_text(text)
    data = tmp_path / "data"
    assert main(["up", f"--scheduler-config={tmp_path / 'scheduler.yaml'}", f"--data={data}"]) == 1
    assert "scheduler.yaml: line 4: profiles[0].plugns: {} is not usable: no such field" in capsys.readouterr().err
    assert not data.exists()


def test_a_file_of_changes_is_sent_to_the_command_that_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(__file__).parents[2] / "docs/examples/what-if-changes.yaml"
    assert main(["what-if", "apply", "-f", str(file), "--snapshot=none"]) == 2
    assert f"koord what-if changes -f {file}" in capsys.readouterr().err


def test_a_second_cluster_takes_free_ports_but_for_those_that_are_named() -> None:
    usual = ports_of(make_parser().parse_args(["up"]))
    free = ports_of(make_parser().parse_args(["up", "--free-ports", "--webhook-port", "9999"]))
    assert usual["port"] == 6443
    assert free == {**dict.fromkeys(usual, 0), "webhook-port": 9999}
