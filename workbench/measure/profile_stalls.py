"""Why warps of a GPU wait, in words: the stall reasons of NVIDIA's ncu.

After the table "Warp Stall Reasons" of the Nsight Compute documentation, Kernel Profiling Guide.
"""

STALLS = {
    "long_scoreboard": "for data from global or local memory: more loads in flight, wider ones, or fewer bytes",
    "short_scoreboard": "for data from shared memory or a special function: fewer bank conflicts, fewer exp and rsqrt",
    "barrier": "at `__syncthreads()`: even work between the warps of a block, or smaller blocks",
    "membar": "at a memory fence: fewer `__threadfence()`",
    "lg_throttle": "because the queue to global memory is full: fewer but wider loads and stores",
    "mio_throttle": "because the queue to shared memory and special functions is full: fewer of these instructions",
    "tex_throttle": "because the queue to the texture unit is full: fewer loads through it",
    "math_pipe_throttle": "for a busy arithmetic unit: it computes as fast as it can",
    "wait": "for the fixed latency of the instruction before: more independent work in a thread",
    "not_selected": "because another warp was chosen: there are enough warps",
    "no_instruction": "for instructions: shorter code, fewer unrolled loops",
    "branch_resolving": "for the target of a branch: fewer branches",
    "imc_miss": "for constants: fewer kernel parameters or constants that differ between threads",
    "drain": "for stores to end at the exit: wider, coalesced stores",
    "sleeping": "because they sleep",
    "dispatch_stall": "for the dispatcher",
    "gmma": "for the matrix unit",
}
