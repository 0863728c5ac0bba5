"""Running new native code where it can hurt nothing: a warm process that forks one child a trial.

`client` is the notebook's side, `worker` the warm process, `child` what runs in the fork. `protocol`, `parcel` and
`guard` are what they share; `allocator` guards what code allocates through torch; `explain` puts a
fault into words. Nothing here judges values: that is `check`.

For kernels of a GPU there is no fork: `gpu_client`, `gpu_process` and `gpu_worker` are a process that keeps its context
and a spare one, `gpu_steps` and `gpu_guard` what runs there, `sanitizer` the same under NVIDIA's compute-sanitizer.
"""

from .client import Worker, worker
from .gpu_client import GpuWorker, gpu_worker
from .parcel import Parcel
from .protocol import Answer, Given, Job, Launch, Made, Meta, Result, Step

__all__ = [
    "Answer",
    "Given",
    "GpuWorker",
    "Job",
    "Launch",
    "Made",
    "Meta",
    "Parcel",
    "Result",
    "Step",
    "Worker",
    "gpu_worker",
    "worker",
]
