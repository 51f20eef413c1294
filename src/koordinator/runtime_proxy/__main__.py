"""``koord-runtime-proxy``, and ``python -m koordinator.runtime_proxy``."""

import sys

from koordinator.base.entry import entry

main = entry("koordinator.runtime_proxy.main")

if __name__ == "__main__":
    sys.exit(main())
