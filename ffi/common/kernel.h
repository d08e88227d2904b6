// The binding of a kernel. This file has what is the same for all kernels. A kernel `x` has
//
//   struct XBatch { Batch in, out; ... };                              x.h: what its custom call gets; with `float*
//                                                                      scratch` and `int64_t scratch_size`, in floats,
//                                                                      working memory, too. JAXDALI_ATTRIBUTES(...)
//                                                                      lists the members that are attributes
//   Status X(const XBatch&, int i);                                    x.h: the CPU kernel, of a sample inside both
//   const char* LaunchX(const XBatch&, const Samples&, void* stream);  x.h: the CUDA kernel; null, or what went wrong
//   ffi::Error SetUp(XBatch*, <operands>);                             x.cc: checks and sets them; `in`, `out` and
//                                                                      attributes are set
//   JAXDALI_DEFINE_KERNEL(x, SetUp, X, LaunchX, .Arg<...>() ...)       x.cc: the list of the operands
//
// An attribute that is no member is a parameter of SetUp, with .Attr<...>("name") in that list.
#ifndef JAXDALI_FFI_COMMON_KERNEL_H_
#define JAXDALI_FFI_COMMON_KERNEL_H_

#include "ffi/common/binding.h"

namespace jaxdali {

// The handler of a kernel. kSetUp checks the operands; kRun is the CPU kernel or the launch. The specialization below
// finds the operands' types in kSetUp's signature, so a binding lists them twice at most: there, and in
// JAXDALI_DEFINE_KERNEL.
template <auto kSetUp, auto kRun>
struct KernelCall;

template <class B, class... Params, ffi::Error (*kSetUp)(B*, Params...), auto kRun>
struct KernelCall<kSetUp, kRun> {
  // The custom call: makes the batches, sets the attributes, lets kSetUp check and take the other operands, and runs
  // the kernel for each sample (CPU) or launches it (CUDA).
  ffi::Error operator()([[maybe_unused]] Device device, ffi::AnyBuffer data, I32 data_offsets, I32 data_shapes,
                        I32 result_offsets, I32 result_shapes, I32 control, ffi::Result<ffi::AnyBuffer> out,
                        ffi::ResultBuffer<ffi::S32> status, ffi::ResultBuffer<ffi::U8> memory, Params... params,
                        ffi::Span<const int64_t> empty, auto... attributes) const {
    Operands operands(empty);
    const auto [in, in_offsets, in_shapes, out_offsets, out_shapes, present] =
        operands.Next(data, data_offsets, data_shapes, result_offsets, result_shapes, control);
    B b{};
    if (auto e = ToBatch(in, in_offsets, in_shapes, &b.in); e.failure()) return e;
    if (auto e = ToBatch(*out, out_offsets, out_shapes, &b.out); e.failure()) return e;
    // The working memory begins with the plans of CUDA's first launch (launch.h). The rest is the kernel's own.
    const int64_t scratch = static_cast<int64_t>(memory->element_count()) - b.out.n * kPlanBytes;
    if (scratch < 0) return ffi::Error::InvalidArgument("too little working memory");
    if constexpr (requires { b.scratch_size; }) {
      b.scratch = reinterpret_cast<float*>(memory->typed_data() + b.out.n * kPlanBytes);
      b.scratch_size = scratch / static_cast<int64_t>(sizeof(float));
    }
    SetAttributes(&b, attributes...);
    auto set_up = [&](auto... args) { return kSetUp(&b, args...); };
    if (auto e = std::apply(set_up, operands.Next(params...)); e.failure()) return e;
#ifdef JAXDALI_CUDA
    return LaunchKernel<B>(kRun, b, device, present, status, memory->typed_data());
#else
    const CallTime time;
    auto error = ForEachSample(present, b.in, b.out, status, [&](int i) -> Status { return kRun(b, i); });
    time.Write(memory);
    return error;
#endif
  }
};

// The type of the batch that a SetUp gets.
template <class B, class... Params>
B BatchOf(ffi::Error (*set_up)(B*, Params...));

// Whether an operand has `columns` numbers for each sample of the batch.
template <class Buffer, class B>
inline bool HasRows(const Buffer& operand, const B& batch, int64_t columns) {
  return static_cast<int64_t>(operand.element_count()) == int64_t{batch.out.n} * columns;
}

}  // namespace jaxdali

#ifdef JAXDALI_CUDA
#define JAXDALI_KERNEL_RUNS(cpu, cuda) cuda
#else
#define JAXDALI_KERNEL_RUNS(cpu, cuda) cpu
#endif

// A library of kernels outside the module is searched for its handlers by name (extension.h).
#ifdef JAXDALI_EXTENSION
#define JAXDALI_DECLARE_HANDLER(name) \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* jaxdali_##name(XLA_FFI_CallFrame*);
#else
#define JAXDALI_DECLARE_HANDLER(name)
#endif

// The parameters are those of JAXDALI_BIND_BATCH, then the operands, then the attributes.
#define JAXDALI_DEFINE_KERNEL(name, set_up, cpu, cuda, ...)                                               \
  JAXDALI_DECLARE_HANDLER(name)                                                                           \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(                                                                          \
      jaxdali_##name, (::jaxdali::KernelCall<&set_up, &JAXDALI_KERNEL_RUNS(cpu, cuda)>{}),                \
      ::jaxdali::BindAttributes<decltype(::jaxdali::BatchOf(&set_up))>(JAXDALI_BIND_BATCH() __VA_ARGS__), \
      JAXDALI_HANDLER_TRAITS)

#endif  // JAXDALI_FFI_COMMON_KERNEL_H_
