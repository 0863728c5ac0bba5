"""Running new native code where it can hurt nothing: a warm process that forks one child a trial.

`client` is the notebook's side, `worker` the warm process, `child` what runs in the fork. `protocol`, `parcel` and
`guard` are what they share; `allocator` guards what code allocates through torch; `explain` puts a
fault into words. Nothing here judges values: that is `check`.
"""

from .client import Worker, worker
from .parcel import Parcel
from .protocol import Answer, Given, Job, Launch, Made, Meta, Result, Step

__all__ = ["Answer", "Given", "Job", "Launch", "Made", "Meta", "Parcel", "Result", "Step", "Worker", "worker"]
