"""Who may change ops now: a cell that runs and a watch that reloads take turns."""

from __future__ import annotations

import threading

turn = threading.RLock()  # held by a cell's whole build, and by the whole reload of a file
