// Host code of lab::normed, forward on the CPU: checks, allocates and calls the kernels of kernels/normed.cpp.
#include "support/launcher.h"

extern "C" int normed_forward_cpu_0_normed(const host_code::Value*);
extern "C" int normed_forward_cpu_1_normed(const host_code::Value*);

namespace normed_forward_cpu {
static const host_code::Argument arguments[] = {
    {"x", host_code::TENSOR, 0}, {"eps", host_code::FLOAT, 0},
};
static const host_code::Allocation allocations[] = {
    {"out", 0}, {"length", 0},
};
static const char* const values[] = {
    "x", "eps", "cols", "rows", "out", "length",
};
static const host_code::Bound bound[] = {
    {0, 0}, {4, 1}, {5, 2},
};
static const int16_t results[] = {
    1, 2,
};

// What outputs and checks need.
static void plan(host_code::Frame& f) {
  const host_code::Tensor& x_ = f.tensors[0];
  f.at = 0;
  const host_code::Span s0 = host_code::unpack("x.shape", x_.shape(), 0, 1, true);
  const int64_t cols_ = s0.data[s0.size - 1]; f.values[2].i = cols_;
  f.at = 1;
  const int64_t rows_ = host_code::prod(x_.shape().slice(int64_t(0), host_code::neg(1))); f.values[3].i = rows_;
  f.at = 2;
  if (!(cols_ > 0)) f.unmet("cols", cols_);
  f.at = 3;
  f.allocate(1, x_.dtype, x_.shape());
  f.at = 4;
  f.allocate(2, host_code::float64, rows_);
}

// What only the kernels need.
static void prepare(host_code::Frame& f) {
  (void)f;
}

static const host_code::Op op = {
    "lab::normed (cpp)",
    "lab::normed_layout",
    arguments, 2, 1,
    allocations, 2,
    bound, 3,
    results, 1, 2,
    values, plan, prepare,
};

static const host_code::Text statements[] = {{"*_, cols = x.shape", 1}, {"rows = prod(x.shape[:-1])", 2}, {"require cols > 0", 3}, {"out = empty(x.shape)", 4}, {"length = empty(rows, dtype=float64)", 5}};
static const host_code::Parameter parameters_0_0[] = {{0, 0, 0}, {4, 0, 0}, {5, 0, 0}, {1, 2, 1}, {3, 10, 0}, {2, 10, 0}};
static const host_code::Function functions_0[] = {{normed_forward_cpu_0_normed, "normed", 6, parameters_0_0, nullptr}};
static const int8_t dtypes_0[] = {6, 6, 7};  // x float32
static const host_code::Parameter parameters_1_0[] = {{0, 0, 0}, {4, 0, 0}, {5, 0, 0}, {1, 2, 1}, {3, 10, 0}, {2, 10, 0}};
static const host_code::Function functions_1[] = {{normed_forward_cpu_1_normed, "normed", 6, parameters_1_0, nullptr}};
static const int8_t dtypes_1[] = {7, 7, 7};  // x float64
static const host_code::Instance instances[] = {{dtypes_0, functions_0}, {dtypes_1, functions_1}};
static const host_code::Value tuned[] = {{}};
static const host_code::Descriptor descriptor = {
    .layout = 0, .instance_count = 2, .instances = instances,
    .function_count = 1, .tuned = tuned, .statements = statements,
};

void call(StableIValue* stack, uint64_t inputs, uint64_t outputs) {
  host_code::Tensor tensors[3];
  host_code::Value values[6];
  host_code::Room rooms[2];
  StableIValue raw[2] = {};
  host_code::Frame f{op, tensors, values, rooms, raw};
  f.descriptor = &descriptor;
  host_code::run(f, stack, inputs, outputs);
}
}  // namespace normed_forward_cpu
