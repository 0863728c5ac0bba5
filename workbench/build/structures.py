"""The structures that Python hands to launchers, laid out as in `launcher.h` and `launcher_cuda.h`. Plain ctypes."""

from __future__ import annotations

import ctypes

Pointer = ctypes.c_void_p


class Value(ctypes.Union):
    _fields_ = (("i", ctypes.c_int64), ("f", ctypes.c_double), ("p", Pointer))


class Parameter(ctypes.Structure):
    _fields_ = (("value", ctypes.c_int32), ("type", ctypes.c_int16), ("from_float", ctypes.c_int16))


class Function(ctypes.Structure):
    _fields_ = (
        ("entry", Pointer),
        ("name", ctypes.c_char_p),
        ("parameter_count", ctypes.c_int64),
        ("parameters", ctypes.POINTER(Parameter)),
        ("allowed", ctypes.POINTER(ctypes.c_int32)),
    )


class Instance(ctypes.Structure):
    _fields_ = (("dtypes", ctypes.POINTER(ctypes.c_int8)), ("functions", ctypes.POINTER(Function)))


class Text(ctypes.Structure):
    _fields_ = (("text", ctypes.c_char_p), ("line", ctypes.c_int64))


class Descriptor(ctypes.Structure):
    _fields_ = (
        ("layout", ctypes.c_int64),
        ("handles", ctypes.c_int64),
        ("instance_count", ctypes.c_int64),
        ("instances", ctypes.POINTER(Instance)),
        ("function_count", ctypes.c_int64),
        ("literals", ctypes.POINTER(Value)),
        ("tuned", ctypes.POINTER(Value)),
        ("statements", ctypes.POINTER(Text)),
        ("choice_count", ctypes.c_int64),
        ("choices", Pointer),  # of Choice
    )


class Choice(ctypes.Structure):
    _fields_ = (("sizes", ctypes.POINTER(ctypes.c_int64)), ("descriptor", ctypes.POINTER(Descriptor)))


class Gpu(ctypes.Structure):
    """One device. `context` is filled in by the first launcher that meets a tensor there: it costs memory."""

    _fields_ = (
        ("context", Pointer),
        ("ordinal", ctypes.c_int32),
        ("arch", ctypes.c_int32),
        ("sm_count", ctypes.c_int32),
        ("shared", ctypes.c_int32),
        ("shared_limit", ctypes.c_int32),
        ("clusters", ctypes.c_int32),
    )


class Driver(ctypes.Structure):
    """The functions of libcuda that a launcher calls, in the order of `launcher_cuda.h`, and the devices."""

    FUNCTIONS = (
        ("launch", "cuLaunchKernel"),
        ("launch_ex", "cuLaunchKernelEx"),
        ("get_context", "cuCtxGetCurrent"),
        ("set_context", "cuCtxSetCurrent"),
        ("retain", "cuDevicePrimaryCtxRetain"),
        ("get_attribute", "cuKernelGetAttribute"),
        ("set_attribute", "cuKernelSetAttribute"),
        ("fill", "cuMemsetD8Async"),
        ("error_name", "cuGetErrorName"),
        ("error_text", "cuGetErrorString"),
        ("stream", "aoti_torch_get_current_cuda_stream"),  # of libtorch_cuda
    )
    _fields_ = (
        *((name, Pointer) for name, _ in FUNCTIONS),
        ("gpu_count", ctypes.c_int64),
        ("gpus", ctypes.POINTER(Gpu)),
    )
