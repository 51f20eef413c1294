"""The command line of ``koord``: what it loads, what its help teaches, what shells complete."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from koordinator import __version__
from koordinator.base.build import commit
from koordinator.cli.main import COMMANDS, main, make_parser

HEAVY = ("asyncio", "aiohttp", "msgspec", "numpy", "rich", "yaml", "cryptography", "psutil", "shtab", "uvloop")
CHECKOUT = Path(__file__).parents[2]


def commands() -> dict[str, argparse.ArgumentParser]:
    (action,) = (each for each in make_parser()._actions if isinstance(each, argparse._SubParsersAction))
    return dict(action.choices)


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["version"]])
def test_what_takes_long_to_load_is_not_loaded_for_little(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from koordinator.cli.main import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit: pass\n"
        f"print('loaded:', *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "loaded:"


def test_the_list_of_commands_says_what_each_command_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(commands()) == list(COMMANDS)
    with pytest.raises(SystemExit):
        main(["--help"])
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert [summary for _, summary in COMMANDS.values() if summary not in text] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_the_help_are_command_lines_that_work(name: str) -> None:
    epilog = re.sub(r"\\\n +", "", commands()[name].epilog or "")
    # What stands in the first columns of a line, up to what explains it.
    lines = [re.split(r" {3,}", line.strip())[0] for line in epilog.splitlines() if re.match(r"  \S", line)]
    examples = [match[0] for line in lines for match in re.finditer(r"\bkoord [^|;>)&]*", line)]
    assert examples, f"koord {name} --help has no example"
    for example in examples:
        options = make_parser().parse_args(shlex.split(example)[1:])
        assert callable(options.run), example


def test_versions_name_the_commit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["version"] == __version__
    assert found["commit"] == commit()


@pytest.mark.skipif(not (CHECKOUT / ".git").exists() or shutil.which("git") is None, reason="not a git checkout")
def test_the_commit_is_that_of_the_checkout() -> None:
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert head.stdout.startswith(commit())
    assert len(commit()) == 12


@pytest.mark.parametrize("module", ["koordinator.cluster", "koordinator.cluster.nodes", "koordinator.cli.main"])
def test_every_program_knows_its_version(module: str) -> None:
    ended = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(rf"[\w.]+ {re.escape(__version__)} \(.*Python 3\..*\)\n", ended.stdout)


def test_output_that_nobody_reads_is_no_error() -> None:
    command = f"{shlex.quote(sys.executable)} -m koordinator.cli.main completion bash | true; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    assert ended.stdout in ("0\n", "141\n")


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    script = tmp_path_factory.mktemp("completion") / "koord"
    ended = subprocess.run(
        [sys.executable, "-m", "koordinator.cli.main", "completion", "bash"], capture_output=True, check=True
    )
    script.write_bytes(ended.stdout)
    return script


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["stat"], {"status"}),
        (["explain", "--nam"], {"--namespace"}),
        (["up", "--scheduler-p"], {"--scheduler-port"}),
        (["status", "-o", "js"], {"json"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
        (["get", "qu"], {"quotas"}),
        (["explain", ""], {"pod", "node", "quota", "gang", "rebalance"}),
        (["explain", "quota", "vi"], {"vision"}),
        (["what-if", "drain", ""], {"node-of-nodes"}),
    ],
)
def test_bash_completes(bash_script: Path, words: list[str], completed: set[str]) -> None:
    typed = shlex.join(["koord", *words])
    code = (
        # Names are those that the command lists, which a cluster would have to be there for.
        'koord() { [ "$2" = quotas ] && echo vision || echo "node-of-$2"; }\n'
        f"source {shlex.quote(str(bash_script))}\n"
        "complete -p koord > /dev/null || exit 9\n"
        f"COMP_WORDS=({typed}); COMP_CWORD={len(words)}\n"
        "function_of_koord=$(complete -p koord | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n"
        f'"$function_of_koord" koord {shlex.quote(words[-1])} {shlex.quote((["koord", *words])[-2])}\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    ended = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert {line.strip() for line in ended.stdout.split()} >= completed


@pytest.mark.parametrize(("shell", "marker"), [("zsh", "#compdef koord"), ("fish", "complete -c koord")])
def test_other_shells_get_their_scripts(shell: str, marker: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert marker in capsys.readouterr().out
