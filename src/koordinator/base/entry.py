"""The entry point of a program, which runs before the program's modules are imported; a separate module, because it
must not import them either."""

import signal
import sys
from collections.abc import Callable
from importlib import import_module


def entry(module: str) -> Callable[[], int]:
    """Return the command of the program whose ``main`` is in ``module``; the command returns the exit status.

    The exit status is 1, with one line on stderr, if packages that the program needs are not installed.
    """

    def main() -> int:
        # Importing a program takes up to a second, in which there is nothing to shut down gracefully: Ctrl-C ends the
        # process by the default signal action, without a stack trace from the middle of an import.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            run: Callable[[], int] = import_module(module).main
        except ModuleNotFoundError as error:
            print(f"error: {what_is_missing(error)}", file=sys.stderr)  # noqa: T201 - no log is configured yet
            return 1
        return run()

    return main


def what_is_missing(error: ModuleNotFoundError) -> str:
    """Return an error message that names the missing module, such as numpy in an image for nodes, and what brings it.
    Raises ``error`` again if the missing module belongs to koordinator itself."""
    if error.name is None or error.name.split(".")[0] == "koordinator":
        raise error
    return f"the module {error.name} is not installed: pip install koordinator brings it"
