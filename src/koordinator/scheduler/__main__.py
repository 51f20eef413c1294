"""``python -m koordinator.scheduler`` is ``koord-scheduler``."""

import sys

from koordinator.scheduler.main import main

sys.exit(main())
