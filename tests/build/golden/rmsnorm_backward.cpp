// The launcher of lab::rmsnorm, backward, cpu: checks, allocates and calls the kernels.
#include "launcher.h"

static const wb::Argument arguments[] = {
    {"grad_y", wb::TENSOR, wb::OPTIONAL}, {"x", wb::TENSOR, 0}, {"w", wb::TENSOR, 0}, {"eps", wb::FLOAT, 0},
    {"y", wb::TENSOR, 0}, {"rstd", wb::TENSOR, 0},
};
static const wb::Allocation allocations[] = {
    {"grad_w", 0}, {"grad_x", 0},
};
static const char* const values[] = {
    "grad_y", "x", "w", "eps", "y", "rstd", "cols", "grad_w", "grad_x", "epsilon",
};
static const wb::Bound bound[] = {
    {0, 0}, {1, 1}, {2, 2}, {4, 3}, {5, 4}, {7, 5}, {8, 6},
};
static const int16_t results[] = {
    6, 5,
};

// What outputs and checks need.
static void plan(wb::Frame& f) {
  const wb::Tensor& x_ = f.tensors[1];
  const wb::Tensor& w_ = f.tensors[2];
  f.at = 0;
  const wb::Span s0 = wb::unpack("x.shape", x_.shape(), 0, 1, true);
  const int64_t cols_ = s0.data[s0.size - 1]; f.values[6].i = cols_;
  f.at = 1;
  f.allocate(5, w_.dtype, w_.shape());
  f.at = 2;
  f.allocate(6, x_.dtype, x_.shape());
}

// What only the kernels need.
static void prepare(wb::Frame& f) {
  const double eps_ = f.values[3].f;
  f.at = 3;
  const double epsilon_ = eps_; f.values[9].f = epsilon_;
}

static const wb::Op op = {
    "lab::rmsnorm (cpp backward)",
    "wb_layout::lab__rmsnorm_backward",
    arguments, 6, 5,
    allocations, 2,
    bound, 7,
    results, 2, 2,
    values, plan, prepare,
};

static void call(StableIValue* stack, uint64_t inputs, uint64_t outputs) {
  wb::Tensor tensors[7];
  wb::Value values[10];
  wb::Room rooms[2];
  StableIValue raw[6] = {};
  wb::Frame f{op, tensors, values, rooms, raw};
  wb::run(f, stack, inputs, outputs);
}
static const char* const names[] = {"rmsnorm_backward"};
WB_LAUNCHER("lab", "CPU", names, call)
