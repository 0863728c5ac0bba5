"""The command line: the verbs of a notebook without one, with progress, exit codes and `--json`.

    workbench doctor                                  is everything here, and does it work
    workbench load kernels/rmsnorm                    build, try and install what a file or a folder holds
    workbench check kernels/rmsnorm --level full      and check it
    workbench bench kernels/rmsnorm --case llama      and time it
    workbench profile kernels/rmsnorm --trace t.json  and see where the time goes
    workbench inspect kernels/rmsnorm --stage sass    and see what the compiler made of it
    workbench tune kernels/matmul --case 1024         and find its fastest configuration
    workbench save kernels/rmsnorm --to rmsnorm_ops   and write it as a package
    workbench deploy model.py:build --to block        a model with its ops, to run without Python
    workbench cache                                   what the cache holds; explain, limit, clear

What a command found goes to standard output, as text or as one JSON object; progress and errors go to standard error.
"""

from __future__ import annotations

from .run import main

__all__ = ["main"]
