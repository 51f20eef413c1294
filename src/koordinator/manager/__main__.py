"""``koord-manager``, and ``python -m koordinator.manager``."""

import signal
import sys


def main() -> int:
    """Run the program; its exit status."""
    # Loading its modules takes a second, in which there is nothing to stop in good order: Ctrl-C just ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from koordinator.manager.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
