// The parts that all FFI bindings share: buffers to batches, the control operand, and the loop over samples or the
// launch. kernel.h makes a whole binding of them. Only handlers whose operands have another form include this file
// directly.
//
// Bindings are compiled for the CPU and, with JAXDALI_CUDA, for the module `_cuda`. There all buffers are on the
// device, and the handler only launches a kernel.
#ifndef JAXDALI_FFI_COMMON_BINDING_H_
#define JAXDALI_FFI_COMMON_BINDING_H_

#include <algorithm>
#include <chrono>
#include <cstring>
#include <forward_list>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ffi/common/batch.h"
#include "ffi/common/samples.h"
#include "ffi/common/status.h"
#include "ffi/common/system.h"
#include "ffi/common/thread_pool.h"
#include "xla/ffi/api/ffi.h"

namespace jaxdali {

namespace ffi = ::xla::ffi;

using I32 = ffi::Buffer<ffi::S32>;
using F32 = ffi::Buffer<ffi::F32>;
using F64 = ffi::Buffer<ffi::F64>;

// Where a handler runs.
struct Device {
  void* stream;  // cudaStream_t; null on the CPU
};

// The DType of an XLA type. Returns false if no kernel supports it.
inline bool ToDType(ffi::DataType t, DType* out) {
  switch (t) {
    case ffi::U8:
      *out = DType::kU8;
      return true;
    case ffi::U16:
      *out = DType::kU16;
      return true;
    case ffi::U32:
      *out = DType::kU32;
      return true;
    case ffi::U64:
      *out = DType::kU64;
      return true;
    case ffi::S8:
      *out = DType::kI8;
      return true;
    case ffi::S16:
      *out = DType::kI16;
      return true;
    case ffi::S32:
      *out = DType::kI32;
      return true;
    case ffi::S64:
      *out = DType::kI64;
      return true;
    case ffi::F16:
      *out = DType::kF16;
      return true;
    case ffi::BF16:
      *out = DType::kBF16;
      return true;
    case ffi::F32:
      *out = DType::kF32;
      return true;
    case ffi::F64:
      *out = DType::kF64;
      return true;
    case ffi::PRED:
      *out = DType::kBool;
      return true;
    default:
      return false;
  }
}

// The operands of a call with their own shapes. XLA keeps an array without elements as a constant of size 0, and
// programs for a GPU should have none. So Python passes one element in place of such an operand. The attribute "empty"
// has the shapes of these: for each its number among the operands, the number of its axes, and their extents. (A larger
// array of zeros would cost a launch that fills it.)
class Operands {
 public:
  explicit Operands(ffi::Span<const int64_t> empty) : empty_(empty) {}

  // The next parameters of the handler, in their order, with their own shapes. Parameters that are no buffers are
  // returned as they are.
  template <class... T>
  std::tuple<T...> Next(T... params) {
    return {Shaped(params)...};  // braces: from left to right
  }

 private:
  // A parameter with its own shape: a view of the same buffer if it is one of `empty_`, otherwise itself.
  template <class T>
  T Shaped(T param) {
    if constexpr (requires { param.untyped_data(); }) {
      const int64_t operand = next_operand_++;
      // The next entry of `empty_` begins at the cursor: number of the operand, number of its axes, their extents.
      if (cursor_ + 1 >= empty_.size() || empty_[cursor_] != operand) return param;
      const int64_t rank = empty_[cursor_ + 1];
      auto* extents = const_cast<int64_t*>(empty_.begin() + cursor_ + 2);  // XLA's struct has no const
      cursor_ += static_cast<size_t>(2 + rank);
      views_.push_front({XLA_FFI_Buffer_STRUCT_SIZE, /*extension_start=*/nullptr,
                         static_cast<XLA_FFI_DataType>(param.element_type()), param.untyped_data(), rank, extents});
      return T(&views_.front());
    } else {
      return param;
    }
  }

  ffi::Span<const int64_t> empty_;
  int64_t next_operand_ = 0;
  size_t cursor_ = 0;                        // position in empty_
  std::forward_list<XLA_FFI_Buffer> views_;  // buffers refer to them
};

// The type in which the attribute of a member of type T comes, see JAXDALI_ATTRIBUTES.
template <class T>
using AttributeType =
    std::conditional_t<std::is_enum_v<T>, int32_t, std::conditional_t<std::is_array_v<T>, ffi::Span<const int64_t>, T>>;

// Sets a member to its attribute.
template <class T>
inline void SetMember(T* member, AttributeType<T> value) {
  *member = static_cast<T>(value);
}
inline void SetMember(int (*axes)[8], ffi::Span<const int64_t> list) {
  for (size_t k = 0; k < 8; k++) (*axes)[k] = k < list.size() ? static_cast<int>(list[k]) : kNoAxis;
}

// The members of S that are attributes, as a tuple of references.
template <class S>
auto AttributesOf(S*) {
  return std::tuple<>();
}
template <class S>
  requires requires(S s) { s.Attributes(); }
auto AttributesOf(S* s) {
  return s->Attributes();
}

// The name of attribute k of S.
template <class S>
std::string AttributeName(size_t k) {
  std::string names = S::AttributeNames();  // "first, second, third"
  for (; k > 0; k--) names.erase(0, names.find(' ') + 1);
  return names.substr(0, names.find(','));
}

// Sets the attributes of S.
template <class S, class... Values>
void SetAttributes(S* s, Values... values) {
  std::apply([&](auto&... member) { (SetMember(&member, values), ...); }, AttributesOf(s));
}

// Adds an attribute for a member of type T to a binding.
template <class T>
struct NamedAttribute {
  std::string name;
};
template <class Binding, class T>
auto operator>>(Binding&& binding, const NamedAttribute<T>& attribute) {
  return std::move(binding).template Attr<AttributeType<T>>(attribute.name);
}

// Adds the attributes to a binding: "empty" (class Operands), then those of S. The handler gets them last.
template <class S, class Binding>
auto BindAttributes(Binding&& binding) {
  auto bind = [&]<class... T>(T&...) {
    [[maybe_unused]] size_t k = 0;
    return (std::move(binding).template Attr<ffi::Span<const int64_t>>("empty") >> ... >>
            NamedAttribute<T>{AttributeName<S>(k++)});
  };
  S s{};  // for the types of its members
  return std::apply(bind, AttributesOf(&s));
}

// The three operands (data, offsets, shapes) as a batch. Works for arguments and for results (pass *result). Offsets
// are empty for a dense batch, whose data are [N, ...]; those of a ragged batch are flat. Shapes are [N, rank], or [0,
// rank].
template <class Buffer>
inline ffi::Error ToBatch(Buffer data, I32 offsets, I32 shapes, Batch* b) {
  auto dims = data.dimensions();
  if (!ToDType(data.element_type(), &b->dtype)) return ffi::Error::InvalidArgument("unknown element type");
  b->data = data.untyped_data();
  b->capacity = static_cast<int64_t>(data.element_count());
  b->ndim = static_cast<int>(shapes.dimensions()[1]);
  if (b->ndim > 8) return ffi::Error::InvalidArgument("more than 8 dimensions");
  if (offsets.element_count() > 0) {
    b->n = static_cast<int>(offsets.element_count());
    b->offsets = offsets.typed_data();
    b->shapes = shapes.typed_data();
    if (static_cast<int64_t>(shapes.element_count()) != static_cast<int64_t>(b->n) * b->ndim)
      return ffi::Error::InvalidArgument("shapes and offsets of a ragged batch differ in length");
  } else {
    if (static_cast<int>(dims.size()) != b->ndim + 1)
      return ffi::Error::InvalidArgument("dense batch: rank of the data");
    b->n = static_cast<int>(dims[0]);
    b->offsets = nullptr;
    b->shapes = nullptr;
    for (int d = 0; d < b->ndim; d++) b->dense[d] = dims[d + 1];
  }
  return ffi::Error::Success();
}

// control i32[1 + N]: the id of the thread pool (used on the CPU only), then 1 for each sample that is present. An
// input may have several times as many samples as the output: these are several inputs, one after the other.
inline bool SizesAgree(I32 control, const Batch& in, const Batch& out, ffi::ResultBuffer<ffi::S32>& status) {
  return (out.n > 0 ? in.n % out.n == 0 : in.n == 0) && in.n >= out.n &&
         static_cast<int>(status->element_count()) == out.n && static_cast<int>(control.element_count()) == out.n + 1;
}

#ifdef JAXDALI_CUDA

// Launches a kernel. launch(batch, samples, stream) returns null or an error message. `plans`: working memory for the
// plans of the samples, see Samples.
template <class B>
inline ffi::Error LaunchKernel(const char* (*launch)(const B&, const Samples&, void*), const B& batch, Device device,
                               I32 control, ffi::ResultBuffer<ffi::S32> status, uint8_t* plans) {
  if (!SizesAgree(control, batch.in, batch.out, status))
    return ffi::Error::InvalidArgument("batch sizes of the operands differ");
  const Samples samples{batch.out.n, control.typed_data() + 1, status->typed_data(), plans};
  if (const char* error = launch(batch, samples, device.stream)) return ffi::Error::Internal(error);
  return ffi::Error::Success();
}

#else

// The time that a call takes. Programs whose steps are measured read it from the first word of the call's working
// memory, which is otherwise unused on the CPU.
class CallTime {
 public:
  // The time since the object was made, in units of 100 ns. An i32 holds up to three minutes.
  int32_t elapsed() const {
    const std::chrono::duration<double, std::ratio<1, 10'000'000>> units = std::chrono::steady_clock::now() - start_;
    return static_cast<int32_t>(std::min(units.count(), 2e9));
  }
  void Write(ffi::ResultBuffer<ffi::U8> memory) const {
    const int32_t units = elapsed();
    if (memory->element_count() >= sizeof(units)) std::memcpy(memory->typed_data(), &units, sizeof(units));
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// task(i) -> Status, with exceptions as status codes: they must not reach XLA, which called the handler.
template <class Task>
inline Status StatusOf(Task& task, int i) {
  try {
    return task(i);
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  } catch (...) {
    return kInternal;
  }
}

// Calls task(i) -> Status for each present sample whose input and output lie inside their buffers. It takes the largest
// outputs first, and writes status[i].
template <class Task>
inline ffi::Error ForEachSample(I32 control, const Batch& in, const Batch& out, ffi::ResultBuffer<ffi::S32> status,
                                Task task) {
  const int n = out.n;
  if (!SizesAgree(control, in, out, status)) return ffi::Error::InvalidArgument("batch sizes of the operands differ");
  const int32_t* present = control.typed_data() + 1;
  int32_t* code = status->typed_data();
  std::vector<int64_t> cost(n);
  for (int i = 0; i < n; i++) cost[i] = out.valid(i) ? out.size(i) : 0;
  AdviseHugePages(out.data, static_cast<size_t>(out.capacity) * static_cast<size_t>(SizeOf(out.dtype)));
  // Absent samples have no data, and count as good. Shapes are data: a sample outside its buffer is our own bug, but
  // must not be touched.
  auto work = [&](int i) {
    if (!present[i])
      code[i] = kOk;
    else if (!in.valid(i) || !out.valid(i))
      code[i] = kInternal;
    else
      code[i] = StatusOf(task, i);
  };
  // A function pointer and its context, because the call may cross into another library (see PoolRun).
  const bool has_pool = RunOnPool(
      control.typed_data()[0], n, [](void* context, int i) { (*static_cast<decltype(work)*>(context))(i); }, &work,
      LargestFirst(cost).data());
  return has_pool ? ffi::Error::Success() : ffi::Error::Internal("unknown thread pool");
}

#endif  // JAXDALI_CUDA

// The last argument of XLA_FFI_DEFINE_HANDLER_SYMBOL. Handlers on the GPU only launch kernels, and never read buffers
// on the host, so XLA may record them into CUDA graphs. The emulated handlers declare the same, so that programs
// compile for a GPU as they would with the real ones.
#ifdef JAXDALI_CUDA
#define JAXDALI_HANDLER_TRAITS {::xla::ffi::Traits::kCmdBufferCompatible}
#else
#define JAXDALI_HANDLER_TRAITS std::initializer_list<::xla::ffi::Traits>()
#endif

// The parameters that each kernel's binding begins with:
//   device, in data, in offsets, in shapes, out offsets, out shapes, control; out data, status, working memory
#define JAXDALI_BIND_BATCH()        \
  ::xla::ffi::Ffi::Bind()           \
      .Ctx<::jaxdali::Device>()     \
      .Arg<::xla::ffi::AnyBuffer>() \
      .Arg<::jaxdali::I32>()        \
      .Arg<::jaxdali::I32>()        \
      .Arg<::jaxdali::I32>()        \
      .Arg<::jaxdali::I32>()        \
      .Arg<::jaxdali::I32>()        \
      .Ret<::xla::ffi::AnyBuffer>() \
      .Ret<::jaxdali::I32>()        \
      .Ret<::xla::ffi::Buffer<::xla::ffi::U8>>()

}  // namespace jaxdali

namespace xla::ffi {

// Lets handlers have a Device as a parameter (Ctx<Device>). Only real CUDA handlers have a stream.
template <>
struct CtxDecoding<::jaxdali::Device> {
  using Type = ::jaxdali::Device;
  static std::optional<Type> Decode([[maybe_unused]] const XLA_FFI_Api* api,
                                    [[maybe_unused]] XLA_FFI_ExecutionContext* context,
                                    [[maybe_unused]] DiagnosticEngine& diagnostic) {
#if defined(JAXDALI_CUDA) && !defined(JAXDALI_EMULATED)
    auto stream = CtxDecoding<PlatformStream<void*>>::Decode(api, context, diagnostic);
    if (!stream) return std::nullopt;
    return Type{*stream};
#else
    return Type{nullptr};
#endif
  }
};

}  // namespace xla::ffi

#endif  // JAXDALI_FFI_COMMON_BINDING_H_
