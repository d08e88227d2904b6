// Binding of `decode`: converts encoded images (or raw pixels, see image_header.h) u8[size] to pixels HWC. It is no
// KernelCall (kernel.h), because the CPU and CUDA kernels get different operands: the CPU decodes sample by sample with
// the threads of the pool (ffi/cpu_codecs), CUDA the whole batch with a table for each file (ffi/cuda_jpeg).
#include "ffi/decode/decode.h"

#include "ffi/common/binding.h"
#include "ffi/cuda_jpeg/table.h"

namespace jaxdali {

// The custom call. `group_bytes` and `tables` are for CUDA only. `attributes` are those of DecodeOptions.
constexpr auto DecodeImpl =
    [](Device device, ffi::AnyBuffer data, I32 offsets, I32 shapes, I32 out_offsets, I32 out_shapes, I32 control,
       ffi::Result<ffi::AnyBuffer> result, ffi::ResultBuffer<ffi::S32> status, ffi::ResultBuffer<ffi::U8> workspace,
       I32 info, I32 tables, int32_t group_bytes, ffi::Span<const int64_t> empty, auto... attributes) -> ffi::Error {
  // Operands without elements get their own shapes back.
  Operands operands(empty);
  std::tie(data, offsets, shapes, out_offsets, out_shapes, control, info, tables) =
      operands.Next(data, offsets, shapes, out_offsets, out_shapes, control, info, tables);
  Batch in, out;
  if (auto e = ToBatch(data, offsets, shapes, &in); e.failure()) return e;
  if (auto e = ToBatch(*result, out_offsets, out_shapes, &out); e.failure()) return e;
  if (in.dtype != DType::kU8 || in.ndim != 1 || out.ndim != 3)
    return ffi::Error::InvalidArgument("decode: u8[size] to [H, W, C]");
  if (info.dimensions().size() != 2 || info.dimensions()[0] != out.n || info.dimensions()[1] != kInfoColumns)
    return ffi::Error::InvalidArgument("decode: info must be i32[N, INFO_COLUMNS]");
  const auto* rows = reinterpret_cast<const ImageInfo*>(info.typed_data());
  DecodeOptions options{};
  SetAttributes(&options, attributes...);
#ifdef JAXDALI_CUDA
  if (tables.dimensions().size() != 2 || tables.dimensions()[0] != out.n || tables.dimensions()[1] != jpeg::kTableWords)
    return ffi::Error::InvalidArgument("decode: tables must be i32[N, TABLE_WORDS]");
  if (group_bytes <= 0) return ffi::Error::InvalidArgument("decode: group_bytes must be positive");
  const DecodeBatch batch{.in = in,
                          .out = out,
                          .info = rows,
                          .tables = reinterpret_cast<const jpeg::ImageTable*>(tables.typed_data()),
                          .workspace = workspace->typed_data(),
                          .workspace_size = static_cast<int64_t>(workspace->element_count()),
                          .type = options.type,
                          .adjust_orientation = options.adjust_orientation,
                          .group_bytes = group_bytes};
  // Decoding does not plan by samples: its launches have their own working memory.
  return LaunchKernel(LaunchDecode, batch, device, control, status, /*plans=*/static_cast<uint8_t*>(nullptr));
#else
  (void)device, (void)tables, (void)group_bytes;
  // A large image may use idle threads of the pool itself, beside the loop over samples.
  const auto pool = ThreadPool::Get(control.typed_data()[0]);  // null: an unknown id, which ForEachSample reports
  options.helpers.pool = pool.get();
  const CallTime time;
  auto error = ForEachSample(control, in, out, status, [&](int i) {
    return DecodeImage(in.sample<uint8_t>(i), in.size(i), rows[i], options, out.dtype, out.bytes(i), out.dim(i, 0),
                       out.dim(i, 1), out.dim(i, 2));
  });
  time.Write(workspace);
  return error;
#endif
};

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    jaxdali_decode, DecodeImpl,
    BindAttributes<DecodeOptions>(JAXDALI_BIND_BATCH()
                                      .Arg<I32>()  // info i32[N, kInfoColumns], rows are ImageInfo
                                      .Arg<I32>()  // tables i32[N, kTableWords], rows are jpeg::ImageTable; CUDA only
                                      .Attr<int32_t>("group_bytes")),  // see jpeg::kGroupBytes; CUDA only
    JAXDALI_HANDLER_TRAITS);

}  // namespace jaxdali
