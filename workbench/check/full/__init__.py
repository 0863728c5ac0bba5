"""`op.check(level="full")`: what a person would forget, made from the op's cases and tried where a crash costs nothing.

`sweep` derives inputs as pure data (`variant`, `classes`, `layouts`, `values`, `bounds`), `run` hands them to the
kernels and makes rows (`rows`, `shrink`); `metadata`, `derivatives`, `graphs` and `transforms` hold a kind of judgement
each. Who runs kernels is in `tryout`, above this package: it comes in as `Tries`.
"""

from .run import CHECKS, HERE, check

__all__ = ["CHECKS", "HERE", "check"]
