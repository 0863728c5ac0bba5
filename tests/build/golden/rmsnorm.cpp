// The launcher of lab::rmsnorm, forward, cpu: checks, allocates and calls the kernels.
#include "launcher.h"

static const wb::Argument arguments[] = {
    {"x", wb::TENSOR, 0}, {"w", wb::TENSOR, 0}, {"eps", wb::FLOAT, 0},
};
static const wb::Allocation allocations[] = {
    {"y", 0}, {"rstd", 0}, {"tmp", wb::ZEROED},
};
static const char* const values[] = {
    "x", "w", "eps", "cols", "rows", "BLOCK", "y", "rstd", "tmp",
};
static const wb::Bound bound[] = {
    {0, 0}, {1, 1}, {6, 2}, {7, 3}, {8, 4},
};
static const int16_t results[] = {
    2, 3,
};

// What outputs and checks need.
static void plan(wb::Frame& f) {
  const wb::Descriptor& d = *f.descriptor;
  const wb::Tensor& x_ = f.tensors[0];
  const wb::Tensor& w_ = f.tensors[1];
  f.at = 0;
  const wb::Span s0 = wb::unpack("x.shape", x_.shape(), 0, 1, true);
  const int64_t cols_ = s0.data[s0.size - 1]; f.values[3].i = cols_;
  f.at = 1;
  const int64_t rows_ = wb::prod(x_.shape().slice(int64_t(0), wb::neg(d.literals[0].i))); f.values[4].i = rows_;
  f.at = 2;
  if (!(wb::equal(w_.shape(), wb::Dims(cols_)))) f.unmet("w.shape", w_.shape(), "cols", cols_);
  f.at = 4;
  f.allocate(2, x_.dtype, x_.shape());
  f.at = 5;
  f.allocate(3, wb::float32, rows_);
}

// What only the kernels need.
static void prepare(wb::Frame& f) {
  const wb::Descriptor& d = *f.descriptor;
  const int64_t rows_ = f.values[4].i;
  const wb::Tensor& x_ = f.tensors[0];
  f.at = 3;
  const int64_t BLOCK_ = d.tuned[0].i; f.values[5].i = BLOCK_;
  f.at = 6;
  f.allocate(4, x_.dtype, wb::floordiv(rows_, d.literals[1].i), BLOCK_);
}

static const wb::Op op = {
    "lab::rmsnorm (cpp)",
    "wb_layout::lab__rmsnorm",
    arguments, 3, 2,
    allocations, 3,
    bound, 5,
    results, 1, 2,
    values, plan, prepare,
};

static void call(StableIValue* stack, uint64_t inputs, uint64_t outputs) {
  wb::Tensor tensors[5];
  wb::Value values[9];
  wb::Room rooms[3];
  StableIValue raw[3] = {};
  wb::Frame f{op, tensors, values, rooms, raw};
  wb::run(f, stack, inputs, outputs);
}
static const char* const names[] = {"rmsnorm", "rmsnorm_forward"};
WB_LAUNCHER("lab", "CPU", names, call)
