// The launcher of lab::kv_, forward, cpu: checks, allocates and calls the kernels.
#include "launcher.h"

static const wb::Argument arguments[] = {
    {"k", wb::TENSOR, 0}, {"cache", wb::TENSOR, wb::MUTATED | wb::STRIDED}, {"scale", wb::TENSOR, wb::OPTIONAL},
    {"at", wb::INT, wb::OPTIONAL}, {"how", wb::STRING, 0},
};
static const wb::Allocation allocations[] = {
    {},
};
static const char* const values[] = {
    "k", "cache", "scale", "at", "how", "B", "D", "first", "s", "half_of", "wide",
};
static const wb::Bound bound[] = {
    {0, 0}, {1, 1}, {2, 2},
};
static const int16_t results[] = {
    {},
};

// What outputs and checks need.
static void plan(wb::Frame& f) {
  const wb::Descriptor& d = *f.descriptor;
  const wb::Tensor& k_ = f.tensors[0];
  const int64_t at_ = f.values[3].i;
  const wb::Tensor& scale_ = f.tensors[2];
  const wb::Tensor& cache_ = f.tensors[1];
  f.at = 0;
  const wb::Span s0 = wb::unpack("k.shape", k_.shape(), 3, 0, false);
  const int64_t B_ = s0.data[0]; f.values[5].i = B_;
  const int64_t D_ = s0.data[2]; f.values[6].i = D_;
  f.at = 1;
  const int64_t first_ = ((f.is_none(3)) ? d.literals[0].i : at_); f.values[7].i = first_;
  f.at = 2;
  if (!((cache_.stride().at(wb::neg(d.literals[4].i)) == d.literals[1].i) && ((!scale_) || (wb::equal(wb::given(scale_, "scale").shape(), wb::Dims(wb::Span(k_.shape().slice(int64_t(0), wb::neg(d.literals[6].i))), d.literals[5].i)))) && (d.literals[2].i <= first_ && first_ < wb::max(B_, d.literals[3].i)))) f.unmet("cache.stride()", cache_.stride(), "scale.shape", scale_.shape(), "k.shape", k_.shape(), "first", first_, "B", B_);
}

// What only the kernels need.
static void prepare(wb::Frame& f) {
  const wb::Descriptor& d = *f.descriptor;
  const wb::Tensor& cache_ = f.tensors[1];
  const int64_t D_ = f.values[6].i;
  const wb::Tensor& k_ = f.tensors[0];
  f.at = 3;
  const int64_t s_ = cache_.stride().at(d.literals[7].i); f.values[8].i = s_;
  f.at = 4;
  const double half_of_ = wb::div(wb::add(D_, d.literals[9].i), d.literals[8].i); f.values[9].f = half_of_;
  f.at = 5;
  const bool wide_ = ((k_.dtype == wb::float32) || !(wb::mod(D_, d.literals[11].i) != d.literals[10].i)); f.values[10].i = wide_;
}

static const wb::Op op = {
    "lab::kv_ (cpp)",
    "wb_layout::lab__kv_",
    arguments, 5, 3,
    allocations, 0,
    bound, 3,
    results, 0, 0,
    values, plan, prepare,
};

static void call(StableIValue* stack, uint64_t inputs, uint64_t outputs) {
  wb::Tensor tensors[3];
  wb::Value values[11];
  wb::Room rooms[1];
  StableIValue raw[5] = {};
  wb::Frame f{op, tensors, values, rooms, raw};
  wb::run(f, stack, inputs, outputs);
}
static const char* const names[] = {"kv_", "kv__forward"};
WB_LAUNCHER("lab", "CPU", names, call)
