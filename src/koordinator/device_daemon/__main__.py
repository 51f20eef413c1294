"""``koord-device-daemon``, and ``python -m koordinator.device_daemon``."""

import signal
import sys


def main() -> int:
    """Run the program; its exit status."""
    # While its modules are loaded there is nothing to stop in good order: Ctrl-C just ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from koordinator.device_daemon.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
