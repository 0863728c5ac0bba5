"""Timing. `rough` is the one number under a cell; it gives no verdict."""
