// What every generated launcher stands on: reading torch's arguments, checks, allocation, the call of the kernels.
//
// A launcher is this file plus a generated text that holds tables (struct Op) and two functions, `plan` and `prepare`,
// which are the directives in C++. Numbers, tuned values, dtypes, entry points, texts and lines are data: they come in
// a Descriptor, which one atomic store replaces. Only C functions of libtorch's stable ABI are called.
//
// What stands between `#ifdef WB_LIVE` and its `#endif` serves a live op alone; saved packages come without it.
#pragma once
#define WB_LIVE
#include "abi.h"
#include "directives.h"

namespace wb {

union Value {
  int64_t i;
  double f;
  void* p;
};

// ---- the descriptor: laid out the same in native.py -----------------------------------------------------------------
struct Parameter {
  int32_t value;       // which named value
  int16_t type;        // C type it is converted to, see type_name
  int16_t from_float;  // 1: the named value is a double, 0: an int64_t or a pointer
};
struct Function {
  // 0, or the position from 1 of a parameter whose value does not fit its C type; of a GPU's kernel: its CUkernel
  int (*entry)(const Value* values);
  const char* name;
  int64_t parameter_count;
  const Parameter* parameters;
  int32_t* allowed;  // of a GPU's kernel: the dynamic shared memory that it may take, by device; 0: not asked yet
};
struct Instance {
  const int8_t* dtypes;  // of each tensor; no_dtype: it is None, any_dtype: no kernel takes it
  const Function* functions;
};
struct Text {
  const char* text;
  int64_t line;
};
struct Choice;
struct Descriptor {
  int64_t layout;  // 1: always ask for the strides of outputs
  int64_t handles;  // 1: the functions take tensors (AtenTensorHandle), which they only borrow, in place of pointers,
                    // 2: and count on contiguous ones
  int64_t instance_count;
  const Instance* instances;
  int64_t function_count;
  const Value* literals;
  const Value* tuned;
  const Text* statements;
  int64_t choice_count;  // sizes that other tuned values were found best for
  const Choice* choices;
};
struct Choice {
  const int64_t* sizes;  // of each tensor argument: its dtype, how many sizes, the sizes; -1 for one that is None
  const Descriptor* descriptor;  // one without choices
};
constexpr int8_t any_dtype = -2;

inline const char* type_name(int32_t code) {
  static const char* const names[] = {"pointer", "float", "double", "bool", "int8_t", "uint8_t", "int16_t", "uint16_t",
                                      "int", "unsigned int", "int64_t", "uint64_t", "half", "bfloat16",
                                      "__nv_fp8_e4m3", "__nv_fp8_e5m2"};
  return names[code];
}

// ---- the tables of a launcher ---------------------------------------------------------------------------------------
enum Type : uint8_t { TENSOR, INT, FLOAT, BOOL, DTYPE, STRING, LIST, OTHER };
enum Flag : uint8_t { OPTIONAL = 1, MUTATED = 2, STRIDED = 4, ZEROED = 8 };

struct Argument {
  const char* name;
  Type type;
  uint8_t flags;
};
struct Allocation {
  const char* name;
  uint8_t flags;
};
struct Bound {
  int16_t value, tensor;  // the slot of a tensor's pointer, and which tensor
};
struct Frame;
struct Op {
  const char* name;    // "lab::rmsnorm (cpp)"
  const char* layout;  // the op that knows the strides of the outputs
  const Argument* arguments;
  int argument_count, tensor_arguments;
  const Allocation* allocations;
  int allocation_count;
  const Bound* bound;  // every named value that is a tensor
  int bound_count;
  const int16_t* results;  // the tensors that are returned, outputs first; -1 is one that no directive makes
  int output_count, result_count;
  const char* const* values;  // names of the values, for messages
  void (*plan)(Frame&);       // what outputs and checks need
  void (*prepare)(Frame&);    // what only the kernels need
};

#ifdef WB_LIVE
// ---- hooks ----------------------------------------------------------------------------------------------------------
struct Hooks {
  const Descriptor* descriptor = nullptr;
  int (*miss)(const int8_t* dtypes, int32_t count) = nullptr;
  void* (*allocate)(int64_t bytes) = nullptr;
  TorchLibraryHandle library = nullptr;
  uint64_t copied = 0;  // arguments that were made contiguous, one bit each
};
static Hooks hooks;  // static: never one with those of another launcher
static thread_local Message reply;  // what a hook of ours or `wb_register` says

inline const Descriptor* current() { return __atomic_load_n(&hooks.descriptor, __ATOMIC_ACQUIRE); }
#endif

inline void check(AOTITorchError code, const char* what) {
  if (__builtin_expect(code != 0, 0)) {
    const char* why = torch_exception_get_what_without_backtrace ? torch_exception_get_what_without_backtrace() : "";
    problem("%s failed%s%.1500s", what, why && *why ? ": " : "", why ? why : "");
  }
}

// ---- tensors --------------------------------------------------------------------------------------------------------
struct Tensor {
  AtenTensorHandle handle = nullptr;  // owned; null is None, or not made yet
  AtenTensorHandle copy = nullptr;    // owned: a contiguous copy of an argument, or what an output is written to first
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;
  int64_t dim = 0, numel = 0;
  Dtype dtype = no_dtype;
  int32_t device_type = 0, device_index = 0;
  bool contiguous = true;
  void* data = nullptr;

  Tensor() = default;
  Tensor(const Tensor&) = delete;
  ~Tensor() {
    if (handle) aoti_torch_delete_tensor_object(handle);
    if (copy) aoti_torch_delete_tensor_object(copy);
  }
  explicit operator bool() const { return handle != nullptr; }
  Span shape() const { return {sizes, dim}; }
  Span stride() const { return {strides, dim}; }

  void read() {
    int64_t *size = nullptr, *stride = nullptr;
    int32_t code = 0;
    check(aoti_torch_get_dim(handle, &dim), "reading a tensor");
    aoti_torch_get_sizes(handle, &size);
    aoti_torch_get_strides(handle, &stride);
    aoti_torch_get_dtype(handle, &code);
    aoti_torch_get_device_type(handle, &device_type);
    aoti_torch_get_device_index(handle, &device_index);
    aoti_torch_is_contiguous(handle, &contiguous);
    sizes = size, strides = stride, dtype = static_cast<Dtype>(code), numel = 1;
    for (int64_t i = 0; i < dim; ++i) numel *= sizes[i];
  }
};

// `x.shape` and the like of a tensor that may be None.
inline const Tensor& given(const Tensor& t, const char* name) {
  if (!t) problem("%s is None", name);
  return t;
}

// Room for the sizes and contiguous strides of one allocation.
struct Room {
  int64_t sizes[MAX_DIM], strides[MAX_DIM];
};

inline int64_t sm_count() {
  uint32_t n = 1;
  torch_get_num_threads(&n);
  return n;
}

// ---- one call -------------------------------------------------------------------------------------------------------
struct Frame {
  const Op& op;
  Tensor* tensors;  // arguments, then allocations
  Value* values;    // arguments, then declared names
  Room* rooms;      // of the allocations
  StableIValue* raw;  // of the arguments: only lists and strings are still owned here
  uint64_t none = 0;  // optional numbers that are None, one bit an argument
  const Descriptor* descriptor = nullptr;
  int at = -1;  // the statement being evaluated
  const Instance* instance = nullptr;

  int tensor_count() const { return op.tensor_arguments + op.allocation_count; }
  bool is_none(int argument) const { return none >> argument & 1; }
  const char* tensor_name(int i) const {
    if (i >= op.tensor_arguments) return op.allocations[i - op.tensor_arguments].name;
    for (const Argument* a = op.arguments;; ++a)
      if (a->type == TENSOR && i-- == 0) return a->name;
  }

  // Called by `plan` and `prepare` for `name = empty(sizes, dtype=)`.
  template <typename... Parts> void allocate(int i, Dtype dtype, const Parts&... parts) {
    plan_tensor(i, dtype, Dims(parts...));
  }
  void plan_tensor(int i, Dtype dtype, Span shape);

  // Called by `plan` when a `require` is not met, with names and values in turn.
  template <typename... Shown> [[noreturn]] __attribute__((noinline, cold)) void unmet(const Shown&... shown) {
    Problem p;
    p.message.add(" is not met");
    unmet_rest(p.message, ": ", shown...);
    throw p;
  }
  void unmet_rest(Message&, const char*) {}
  template <typename T, typename... Rest>
  void unmet_rest(Message& m, const char* joint, const char* name, const T& value, const Rest&... rest) {
    m.add("%s%s is ", joint, name);
    show(m, value);
    unmet_rest(m, ", ", rest...);
  }
  ~Frame();
};

}  // namespace wb

#include "launcher_tensors.h"
#include "launcher_choose.h"
#include "launcher_run.h"
