// The launcher of lab::rmsnorm, forward, cuda: checks, allocates and calls the kernels.
#include "launcher.h"
#include "launcher_cuda.h"

static const wb::Argument arguments[] = {
    {"x", wb::TENSOR, 0}, {"w", wb::TENSOR, 0}, {"eps", wb::FLOAT, 0},
};
static const wb::Allocation allocations[] = {
    {"y", 0}, {"rstd", 0}, {"part", wb::ZEROED},
};
static const char* const values[] = {
    "x", "w", "eps", "cols", "rows", "BLOCK", "parts", "y", "rstd", "part",
};
static const wb::Bound bound[] = {
    {0, 0}, {1, 1}, {7, 2}, {8, 3}, {9, 4},
};
static const int16_t results[] = {
    2, 3,
};

// What outputs and checks need.
static void plan(wb::Frame& f) {
  const wb::Descriptor& d = *f.descriptor;
  const wb::Tensor& x_ = f.tensors[0];
  f.at = 0;
  const wb::Span s0 = wb::unpack("x.shape", x_.shape(), 0, 1, true);
  const int64_t cols_ = s0.data[s0.size - 1]; f.values[3].i = cols_;
  f.at = 1;
  const int64_t rows_ = wb::prod(x_.shape().slice(int64_t(0), wb::neg(d.literals[0].i))); f.values[4].i = rows_;
  f.at = 4;
  f.allocate(2, x_.dtype, x_.shape());
  f.at = 5;
  f.allocate(3, wb::float32, rows_);
}

// What only the kernels need.
static void prepare(wb::Frame& f) {
  const wb::Descriptor& d = *f.descriptor;
  const int64_t rows_ = f.values[4].i;
  const int64_t cols_ = f.values[3].i;
  f.at = 2;
  const int64_t BLOCK_ = d.tuned[0].i; f.values[5].i = BLOCK_;
  f.at = 3;
  const int64_t parts_ = wb::min(rows_, wb::mul(d.literals[1].i, wb::gpu(f).sm_count)); f.values[6].i = parts_;
  f.at = 6;
  f.allocate(4, wb::float32, parts_, cols_);
}

// How each kernel is launched.
static void geometry(wb::CudaFrame& f) {
  const wb::Descriptor& d = *f.descriptor;
  const int64_t rows_ = f.values[4].i;
  const int64_t BLOCK_ = f.values[5].i;
  const int64_t cols_ = f.values[3].i;
  const int64_t parts_ = f.values[6].i;
  f.at = 7;
  f.grid(0, rows_);
  f.at = 8;
  f.block(0, BLOCK_);
  f.at = 9;
  f.shared(0, wb::mul(cols_, d.literals[2].i));
  f.at = 10;
  f.grid(1, wb::cdiv(cols_, d.literals[3].i), parts_);
  f.at = 11;
  f.block(1, d.literals[4].i, d.literals[5].i);
  f.at = 12;
  f.cluster(1, d.literals[6].i, d.literals[7].i);
}

static const wb::Op op = {
    "lab::rmsnorm (cuda)",
    "wb_layout::lab__rmsnorm",
    arguments, 3, 2,
    allocations, 3,
    bound, 5,
    results, 1, 2,
    values, plan, prepare,
};

static void call(StableIValue* stack, uint64_t inputs, uint64_t outputs) {
  wb::Tensor tensors[5];
  wb::Value values[10];
  wb::Room rooms[3];
  StableIValue raw[3] = {};
  wb::Geometry kernels[2];
  wb::Value packed[20];
  void* pointers[20];
  wb::CudaFrame f{{op, tensors, values, rooms, raw}, geometry, kernels, packed, pointers};
  wb::run(f, stack, inputs, outputs);
}
static const char* const names[] = {"rmsnorm", "rmsnorm_forward"};
WB_LAUNCHER("lab", "CUDA", names, call)
WB_DRIVER
