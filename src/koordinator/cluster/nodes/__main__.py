"""``python -m koordinator.cluster.nodes``."""

import sys

from koordinator.cluster.nodes.main import main

if __name__ == "__main__":
    sys.exit(main())
