"""Libraries that register themselves, taken over: their blocks read, their ops completed, re-runs switched."""
