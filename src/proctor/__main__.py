"""``python -m proctor``."""

from __future__ import annotations

import sys

from proctor.cli.app import main

sys.exit(main())
