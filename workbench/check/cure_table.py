"""Symptoms and cures, as data: what reports say below a failure and what docs/cures.md lists. No code but a shape.

`about` is a row of a check, a kind of failure (`mismatch`, `crash`, `overrun`, ...), `build`, or "" for any. `words` is
a regular expression that is looked for in the failure; the first entry that fits says the cure. `symptom` is the
failure in plain words.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cure:
    about: str
    words: str
    symptom: str
    cure: str


NO_FAKE = "There is no fake: give the op a reference with wb.op, or @op.fake."
SAME_FAKE = "Its {} are not the kernel's: make the kernel and the reference (or @op.fake) say the same."
WRITES = "The op changes an argument that its schema does not name: add it to mutates=."
ALIASES = "The op returns one of its inputs, or a view of it: return a clone."
DYNAMIC = "The shape depends on values: give @op.fake, with torch.library.get_ctx().new_dynamic_size() as that size."
GENERATOR = "Drawing numbers from a generator has no symbolic form in torch: give @op.fake."
VALUES = "The fake, or the reference as one, looks at values: give @op.fake; such a size is torch.library.get_ctx().new_dynamic_size()."
SYMBOLIC = "A fake must work with symbolic sizes: no int() and no `if` on a size."
OTHER_FORMULA = "The backward is not the forward's derivative: look at its formula."
NOT_SAVED = "The backward takes what no forward saved: put a forward cell that makes it beside, or compute it again."
STATE = "Does the op keep state, or read outside of its inputs?"
RACE = "A race: threads write to one place, or read what others have not written yet."
THREADS = "Or it is a race: the kernel has threads."
NO_RULE = "The op has no rule of its own: it is called for each element, and one of these calls gave another answer."
BATCHING = (
    "Leave @op.vmap out (the op is then called for each element), or fold the batch into a leading dimension there."
)
GUARD = "Guard the last block: `if (i < n)`, and a loop for what no whole vector holds."
GUARDS = {  # in whose words what GUARD says is said, where the language is known
    "cpp": "Look at the loop's bound (`<`, not `<=`), and whether that tensor is as long as the loop: where it need not be, `//! require` its size.",
    "triton": "Give each load and store a mask, `mask=i < n`, with n the size of that tensor; a block pointer takes `boundary_check=(0, 1)`.",
}
COUNTERS = "Look at loop counters: too few bits, or a step of 0."
SLOW = "Or Triton's interpreter, which runs the programs of a grid one by one, has too many: a smaller case, or bench=True."
GRAPH_BREAK = "Something between its tensors is no torch code: keep .item(), print and `if` on values out of the graph."

LOOKS = r"guard on data-dependent|DataDependentOutput|local_scalar_dense"
UNKNOWN = r"data.?depend|unbacked|DynamicOutputShape|depends on the values"
ADDS = "adds to what was there, which is poison"
FAR_OFF = " (far off)"  # added to a failure in which an element is further off than any rounding

TABLE: tuple[Cure, ...] = (
    # values, in the trial and in a check
    Cure("agreement", ADDS, "elements of an output are made of what was there before",
         "Make it of zeros, or set each element before something is added to it."),
    Cure("agreement", r"never written", "elements of an output hold what was there before",
         "Elements are not written: look at the grid, or the last rows and columns."),
    Cure("agreement", r"is \w+, the reference gives", "the output has another dtype than the reference's",
         "Allocate the output in the reference's dtype: empty(..., dtype=)."),
    Cure("agreement", r"has strides", "the output is laid out otherwise than the reference's",
         "Write the layout that the reference gives."),
    Cure("agreement", r"has shape", "the output has another shape than the reference's",
         "Allocate the output with the shape that the reference gives."),
    Cure("agreement", r"\d+ results", "another number of results than the schema says",
         "Return as many outputs as the op's schema says."),
    Cure("agreement", r"^compare ", "the function given to compare fails",
         "The function given to compare must take any results of the right shapes."),
    Cure("agreement", r"most.*: (nan|-?inf) where", "NaN or infinity where there should be a number",
         "Look for a division by zero, an overflow, or memory never written."),
    Cure("agreement", r"most.* where (nan|-?inf) was", "a number where NaN or infinity should be",
         "Comparisons with NaN are false: write them so that it falls through, and leave out -ffast-math."),
    Cure("agreement", r"elements differ.*\(far off\)", "values differ from the reference's by more than rounding",
         "No rounding is that far off: look at indices, at bounds of loops, at what a sum begins with."),
    Cure("agreement", r"elements differ", "values differ from the reference's",
         "Is another rounding meant? Then give the case error=, or atol= and rtol=."),
    Cure("layouts", r"elements differ", "values differ where inputs are transposed, sliced or expanded",
         "Read each dimension by its own stride, or ask for no x.stride(): inputs are then contiguous."),
    # what a kernel does to memory and to the process
    Cure("overrun", r"before the start", "writes before the start of a tensor",
         "An index is below 0: look at what is subtracted, and at sizes smaller than a block."),
    Cure("overrun", r".", "reads or writes past the end of a tensor", GUARD),
    Cure("mutation", r".", "writes to an argument that the schema does not let it change",
         "Write to an output or a workspace; or say that it is changed: mutates=."),
    Cure("process", r".", "changes the process it runs in, or leaves a thread or a process at work",
         "Put it back before the function returns; join the threads, wait for the processes."),
    Cure("aliasing", r".", "an output shares memory with an argument, for some inputs", ALIASES),
    Cure("unwritten", r".", "elements are never written, and NaN was wanted there",
         "Write every element, NaN too: look at the branch that such values take."),
    Cure("crash", r"null pointer", "reads through a null pointer", "An argument that is None is null: test for it first."),
    Cure("crash", r"division by zero|SIGFPE", "divides integers by zero", "A size may be 0: test for it before `/` and `%`."),
    Cure("crash", r"stack overflow", "the stack overflows", "Large local arrays belong into a workspace: `//! tmp = empty(...)`."),
    Cure("crash", r"memory|bad_alloc", "takes more memory than there is", "Allocate what the sizes ask for and no more."),
    Cure("crash", r".", "the process dies", f"Most often an index out of bounds. {GUARD}"),
    Cure("hang", r".", "does not end", COUNTERS),
    Cure("raises", r".", "raises on inputs that the reference takes",
         "Take these inputs, or say that they are none: `//! require`, or let the reference raise, too."),
    Cure("accepts", r"past the end|before the start|crash|stopped|writes|reads", "crashes on inputs that the reference refuses",
         "Refuse them: `//! require`, or a check before the kernel."),
    Cure("determinism", r"elements differ", "one of several runs on the same input is wrong",
         RACE),
    # torch.library.opcheck
    Cure("schema", r"mutat|modif|immutable|writ", "undeclared mutation: an argument changes that the schema does not name", WRITES),
    Cure("schema", r"alias", "the op returns an input or a view of it", ALIASES),
    Cure("schema", r"argument|arity|expected \d+|positional", "wrong arity against the schema",
         "The kernel takes other arguments than the schema says: run the op's own cell again, or change the signature."),
    Cure("fake", LOOKS, "a fake that looks at values", VALUES),
    Cure("fake", UNKNOWN, "the shape of an output depends on values", DYNAMIC),
    Cure("fake", r"not allocated|data_ptr|no fake|'meta' backend", "missing fake: data is not allocated yet", NO_FAKE),
    Cure("fake", r"guard|symbol|SymInt", "a fake that does not take SymInts", SYMBOLIC),
    Cure("fake", r"\bdtype|(float|int)\d* .*by the fake, (?!\1)", "the fake's dtype is not the kernel's", SAME_FAKE.format("dtypes")),
    Cure("fake", r"strid|layout", "the fake's strides are not the kernel's", SAME_FAKE.format("strides")),
    Cure("fake", r"shape|size", "the fake's shape is not the kernel's", SAME_FAKE.format("shapes")),
    Cure("autograd registration", r".", "the gradient is made inside the kernel",
         "Give the gradient with @op.backward or a backward cell, not inside the kernel."),
    # gradients
    Cure("", r"setup_context", "torch.func cannot take an autograd.Function of the reference: gradients of gradients, vmap",
         "Give that Function `setup_context`, and a forward without ctx; gradients of first order need neither."),
    Cure("gradients", r"has no gradient|not require grad", "an output has no gradient, the reference's has one",
         "An output is cut from the graph: look for detach()."),
    Cure("gradients", r"random", "an op that draws random numbers has no gradient by default",
         "Take a seed or the noise as an argument, or write @op.backward."),
    Cure("gradients", r"saved|saves", "nothing saved for backward", NOT_SAVED),
    Cure("gradients", r"expanded", "the gradient is wrong after sum(), whose gradient is one number expanded",
         "The incoming gradient has strides of 0: make it contiguous first, or read it by its strides."),
    Cure("gradients", r"elements differ", "the gradient is not the reference's",
         "The backward is not the reference's derivative: look at that gradient."),
    Cure("requires_grad", r".", "the gradient of one argument depends on which others ask for one",
         "Compute each gradient by itself: ask of none whether others are wanted."),
    Cure("second derivatives", r"does not require grad|no grad", "the gradient has no gradient",
         "Write the backward in differentiable torch code, without detach() and .data."),
    Cure("second derivatives", r".", "the second derivative is wrong", "Something in the backward is cut from the graph: look for detach()."),
    Cure("directional derivatives", r".", "the gradient is not the slope of the op's own forward", OTHER_FORMULA),
    Cure("gradcheck", r"mismatch|numerical", "failed gradcheck: Jacobian mismatch", OTHER_FORMULA),
    Cure("gradcheck", r"reentrant|determinis", "the backward gives other values each time",
         "The backward gives other values each time: a race, or atomics."),
    # graphs
    Cure("graphs", r"not allocated|no fake|support running with fake", "missing fake, seen when compiled", NO_FAKE),
    Cure("graphs", LOOKS, "a fake that looks at values, seen when compiled", VALUES),
    Cure("graphs", UNKNOWN, "the shape of an output depends on values", DYNAMIC),
    Cure("graphs", r"only concrete integers", "a generator in the reference, seen when compiled", GENERATOR),
    Cure("graphs", r"symbol|SymInt|guards? |guard on|fake tensor call|specializ", "a fake that does not take SymInts, seen when compiled", SYMBOLIC),
    Cure("graphs", r"graph break|Unsupported", "graph break: dynamo stops at the op", GRAPH_BREAK),
    Cure("compile", r"shape|size", "shape mismatch only when compiled", SAME_FAKE.format("shapes")),
    Cure("compile", r"grad", "the backward fails when compiled",
         "The backward must use only what it is given, no tensors that it closed over."),
    Cure("compile", r"not close|differ|mismatch", "values differ when compiled", STATE),
    Cure("compile", r".", "raises with symbolic sizes only", SYMBOLIC),
    Cure("compiled = eager", r"strides", "the strides differ when compiled", "The fake says other strides than the kernel writes: see the fake row."),
    Cure("compiled = eager", r"differ", "values differ when compiled", STATE),
    Cure("compiled, dynamic shapes", r"graphs for", "compiled again for each size", SYMBOLIC),
    Cure("compiled, dynamic shapes", r"strides|shape", "shape mismatch only when compiled", SAME_FAKE.format("shapes and strides")),
    Cure("compiled, dynamic shapes", r".", "values differ when compiled", STATE),
    Cure("compiled, gradients", r"differ", "gradients differ when compiled", "The backward must use only what it is given, no tensors that it closed over."),
    Cure("compiled, gradients", r".", "the backward fails when compiled", SYMBOLIC),
    Cure("export", r"refuses other sizes|specializ|constant", "an exported program takes one size only", SYMBOLIC),
    Cure("export", r".", "torch.export fails", GRAPH_BREAK),
    Cure("inductor", r"expected size", "shape mismatch only when compiled", SAME_FAKE.format("shapes and strides")),
    Cure("inductor", r"fus|fallback|lower", "an op that Inductor cannot fuse",
         "An opaque op is called as it is: do more inside it, or leave it to the reference where Inductor does well."),
    Cure("inductor", r".", "Inductor hands it other layouts than eager mode", "Take strided inputs, or make them contiguous first."),
    # transforms
    Cure("vmap", r"batching rule|not batched|vmap", "missing batching rule, or one that is wrong",
         BATCHING),
    Cure("vmap", r".", "vmap fails", "Does the reference look at values, or at numbers of dimensions?"),
    Cure("autocast", r".", "other answers or dtypes under autocast", "Cast outside of the op: reference, fake and vjp run with autocast off."),
    Cure("CUDA graph", r".", "a CUDA graph cannot hold it", "Nothing may wait for the GPU, copy to the CPU or allocate with cudaMalloc inside."),
    Cure("streams", r".", "it runs on another stream than the current one", "Launch on the current stream: at::cuda::getCurrentCUDAStream()."),
    # building
    Cure("build", r"undefined symbol|undefined reference", "undefined symbol when the library is loaded",
         "Something is declared and defined nowhere: add its file to the sources, or its library to the flags."),
    Cure("build", r"no member|not a member", "a name that this version of torch does not have", "Look it up in the headers of the torch that is installed."),
    Cure("", r"same device|on cpu|cuda", "tensors on several devices", "Are all tensors on one device, and has the op a kernel for it?"),
)  # fmt: skip
