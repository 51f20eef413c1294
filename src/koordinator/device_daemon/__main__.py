"""``koord-device-daemon``, and ``python -m koordinator.device_daemon``."""

import sys

from koordinator.base.entry import entry

main = entry("koordinator.device_daemon.main")

if __name__ == "__main__":
    sys.exit(main())
