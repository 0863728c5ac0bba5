// What most pasted code needs: tensors, their functions, library blocks; torch:: names what at:: has. Precompiled.
//
// torch/types.h adds factories that know requires_grad, and half a second to each run of the compiler.
#pragma once
#include <ATen/ATen.h>

#include <ATen/Parallel.h>
#include <torch/library.h>

namespace torch {
using namespace at;  // as torch/types.h has it
using Dtype = at::ScalarType;
constexpr auto kUInt8 = at::kByte, kU8 = at::kByte;
constexpr auto kInt8 = at::kChar, kI8 = at::kChar;
constexpr auto kInt16 = at::kShort, kI16 = at::kShort;
constexpr auto kInt32 = at::kInt, kI32 = at::kInt;
constexpr auto kInt64 = at::kLong, kI64 = at::kLong;
constexpr auto kFloat16 = at::kHalf, kF16 = at::kHalf;
constexpr auto kFloat32 = at::kFloat, kF32 = at::kFloat;
constexpr auto kFloat64 = at::kDouble, kF64 = at::kDouble;
using std::nullopt;
using std::optional;
}  // namespace torch
