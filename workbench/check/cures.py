"""What to do about a failed check, as data: the first line whose words occur in the failure says it."""

from __future__ import annotations

import re

NO_FAKE = "There is no fake: give the op a reference with wb.op, or @op.fake."
SAME_FAKE = "Its {} are not the kernel's: make the kernel and the reference (or @op.fake) say the same."
WRITES = "The op changes an argument that its schema does not name: add it to mutates=."
DYNAMIC = "The shape depends on values: give @op.fake, with torch.library.get_ctx().new_dynamic_size() as that size."
GENERATOR = "Drawing numbers from a generator has no symbolic form in torch: give @op.fake."
SYMBOLIC = "A fake must work with symbolic sizes: no int() and no `if` on a size."

# (check, words in the failure as a regular expression, cure); the check "" stands for any.
CURES: tuple[tuple[str, str, str], ...] = (
    ("agreement", r"never written", "Elements are not written: look at the grid, or the last rows and columns."),
    ("agreement", r"is \w+, the reference gives", "Allocate the output in the reference's dtype: empty(..., dtype=)."),
    ("agreement", r"has strides", "Write the layout that the reference gives."),
    ("agreement", r"has shape", "Allocate the output with the shape that the reference gives."),
    ("agreement", r"\d+ results", "Return as many outputs as the op's schema says."),
    ("agreement", r"^compare ", "The function given to compare must take any results of the right shapes."),
    ("agreement", r"most.*: (nan|-?inf) where", "Look for a division by zero, an overflow, or memory never written."),
    ("agreement", r"elements differ", "Is another rounding meant? Then give the case error=, or atol= and rtol=."),
    ("schema", r"mutat|modif|immutable|writ", WRITES),
    ("schema", r"alias", "The op returns one of its inputs, or a view of it: return a clone."),
    ("fake", r"data.?depend|unbacked|DynamicOutputShape", DYNAMIC),
    ("fake", r"not allocated|data_ptr|no fake|'meta' backend", NO_FAKE),
    ("fake", r"guard|symbol", SYMBOLIC),
    ("fake", r"dtype", SAME_FAKE.format("dtypes")),
    ("fake", r"strid|layout", SAME_FAKE.format("strides")),
    ("fake", r"shape|size", SAME_FAKE.format("shapes")),
    ("autograd registration", r".", "Give the gradient with @op.backward or a backward cell, not inside the kernel."),
    ("gradients", r"has no gradient|not require grad", "An output is cut from the graph: look for detach()."),
    ("gradients", r"random", "Take a seed or the noise as an argument, or write @op.backward."),
    ("gradients", r"elements differ", "The backward is not the reference's derivative: look at that gradient."),
    ("gradcheck", r"mismatch|numerical", "The backward is not the forward's derivative: look at its formula."),
    ("gradcheck", r"reentrant|determinis", "The backward gives other values each time: a race, or atomics."),
    ("compile", r"not allocated|no fake", NO_FAKE),
    ("compile", r"only concrete integers", GENERATOR),
    ("compile", r"symbol|SymInt|guard", SYMBOLIC),
    ("compile", r"grad", "The backward must use only what it is given, no tensors that it closed over."),
    ("compile", r"not close|differ|mismatch", "Does the op keep state, or read outside of its inputs?"),
    ("compiled = eager", r"strides", "The fake says other strides than the kernel writes: see the fake row."),
    ("compiled = eager", r"differ", "Does the op keep state, or read outside of its inputs?"),
    ("compiled = eager", r"symbol|SymInt|guard", SYMBOLIC),
    ("", r"same device|on cpu|cuda", "Are all tensors on one device, and has the op a kernel for it?"),
)  # fmt: skip


def cure(check: str, failure: str) -> str:
    """What to do about a failure, or an empty string when nobody knows.

    >>> cure("schema", "Argument x is not defined as mutable but was mutated")
    'The op changes an argument that its schema does not name: add it to mutates=.'
    """
    fits = (text for about, words, text in CURES if about in ("", check) and re.search(words, failure, re.IGNORECASE))
    return next(fits, "")
