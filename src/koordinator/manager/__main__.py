"""``python -m koordinator.manager`` is ``koord-manager``."""

import sys

from koordinator.manager.main import main

sys.exit(main())
