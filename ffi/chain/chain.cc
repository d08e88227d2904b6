// Binding of the chain: each stage has the operands and attributes of its kernel.
#include "ffi/chain/chain.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "ffi/chain/windowed.h"
#include "ffi/common/binding.h"
#include "ffi/common/stages.h"

namespace jaxdali {

// Defined with the bindings of the kernels themselves.
ffi::Error SetUp(ResizeBatch* b, F32 roi, I32 filters, int32_t first_axis, int32_t num_axes, bool antialias);
ffi::Error SetUp(ResizeBatch* b, F32 roi, I32 filters, int32_t first_axis, int32_t num_axes, bool antialias,
                 int32_t convention);
ffi::Error SetUp(WarpBatch* b, F64 map, F32 fill, int32_t dims, int32_t first, bool linear, bool has_fill);
ffi::Error SetUp(WindowBatch* b, I32 start, I32 step, I32 extent, F32 fill, F32 scale, F32 offset,
                 ffi::Span<const int64_t> permutation, int32_t channel);

namespace {

// What a call of the chain gets beside its batch. First come the inputs of all stages but the first (data, which are
// empty, and shapes), then the operands of each stage. The attributes of a stage are called "<stage>_<name>".
class Given {
 public:
  Given(Operands* operands, ffi::RemainingArgs args, ffi::Dictionary attrs)
      : operands_(operands), args_(args), attrs_(attrs) {}

  // Goes to the attributes of a stage, which `Next` takes in this order.
  void Begin(size_t stage, std::vector<std::string_view> names) {
    prefix_ = std::to_string(stage) + "_";
    names_ = std::move(names);
    next_name_ = 0;
  }

  // The next operand of the stage if T is a buffer, otherwise its next attribute.
  template <class T>
  ffi::ErrorOr<T> Next() {
    if constexpr (std::is_same_v<T, ffi::AnyBuffer> || std::is_same_v<T, I32> || std::is_same_v<T, F32> ||
                  std::is_same_v<T, F64>) {
      auto given = args_.get<T>(next_++);
      if (given.has_error()) return given;
      return std::get<0>(operands_->Next(*given));
    } else {
      return attrs_.get<T>(prefix_ + std::string(names_[next_name_++]));
    }
  }

  template <class B, class... Params>
  ffi::Error SetUpStage(ffi::Error (*set_up)(B*, Params...), B* batch) {
    return Apply<Params...>([&](Params... params) { return set_up(batch, params...); });
  }

  // Calls f(next ...). Returns an error if an operand or an attribute is missing.
  template <class... Params, class F>
  ffi::Error Apply(F f) {
    std::tuple<ffi::ErrorOr<Params>...> got{Next<Params>()...};
    return std::apply(
        [&](auto&... each) {
          ffi::Error error = ffi::Error::Success();
          ((each.has_error() && error.success() ? void(error = each.error()) : void()), ...);
          return error.failure() ? error : f(*each...);
        },
        got);
  }

 private:
  Operands* operands_;
  ffi::RemainingArgs args_;
  ffi::Dictionary attrs_;
  size_t next_ = 0, next_name_ = 0;
  std::string prefix_;
  std::vector<std::string_view> names_;
};

// The operands and attributes of stage k.
ffi::Error SetUpStage(Given* given, size_t k, ResizeBatch* batch) {
  given->Begin(k, {"first_axis", "num_axes", "antialias"});
  ffi::Error (*set_up)(ResizeBatch*, F32, I32, int32_t, int32_t, bool) = SetUp;
  return given->SetUpStage(set_up, batch);
}
ffi::Error SetUpStage(Given* given, size_t k, WarpBatch* batch) {
  given->Begin(k, {"dims", "first", "linear", "has_fill"});
  ffi::Error (*set_up)(WarpBatch*, F64, F32, int32_t, int32_t, bool, bool) = SetUp;  // three axes, so `dims` is 2
  return given->SetUpStage(set_up, batch);
}
ffi::Error SetUpStage(Given* given, size_t k, WindowBatch* batch) {
  given->Begin(k, {"permutation", "channel"});
  ffi::Error (*set_up)(WindowBatch*, I32, I32, I32, F32, F32, F32, ffi::Span<const int64_t>, int32_t) = SetUp;
  return given->SetUpStage(set_up, batch);
}

#ifdef JAXDALI_CUDA

template <class B>
ffi::Error Launch(Given* given, const std::vector<Batch>& values, Device device, I32 control,
                  ffi::ResultBuffer<ffi::S32> status, uint8_t* plans) {
  Windowed<B> b{};
  b.in = b.of.in = values[0];
  b.of.out = b.window.in = values[1];
  b.out = b.window.out = values[2];
  if (auto e = SetUpStage(given, 0, &b.of); e.failure()) return e;
  if (auto e = SetUpStage(given, 1, &b.window); e.failure()) return e;
  const char* (*launch)(const Windowed<B>&, const Samples&, void*) = LaunchWindowed;
  return LaunchKernel(launch, b, device, control, status, plans);
}

// On a GPU there are few chains: see chain.cu.
ffi::Error RunChain(const std::vector<std::string_view>& kernels, std::vector<Batch> values, Given* given,
                    Device device, I32 control, ffi::ResultBuffer<ffi::S32> status, ffi::ResultBuffer<ffi::U8> memory,
                    bool) {
  if (kernels.size() != 2 || kernels[1] != "window") return ffi::Error::InvalidArgument("chain: stages");
  if (static_cast<int64_t>(memory->element_count()) < values[2].n * kPlanBytes)
    return ffi::Error::InvalidArgument("too little working memory");
  values[1].capacity = std::numeric_limits<int64_t>::max();  // it has no memory, so images of all sizes fit
  uint8_t* plans = memory->typed_data();
  if (kernels[0] == "resize") return Launch<ResizeBatch>(given, values, device, control, status, plans);
  if (kernels[0] == "warp") return Launch<WarpBatch>(given, values, device, control, status, plans);
  return ffi::Error::InvalidArgument("chain: unknown kernel");
}

#else

ffi::Error MakeDecode(Given* given, const Batch& in, const Batch& out, Chain* chain) {
  auto stage = std::make_unique<DecodeStage>();
  auto error = given->Apply<I32, I32, int32_t, bool, bool>(
      [&](I32 info, I32, int32_t output_type, bool adjust_orientation, bool fast_idct) {
        if (in.dtype != DType::kU8 || in.ndim != 1 ||
            static_cast<int64_t>(info.element_count()) != int64_t{out.n} * kInfoColumns)
          return ffi::Error::InvalidArgument("chain: decode: u8[size] and info i32[N, INFO_COLUMNS]");
        stage->in = in;
        stage->out = out;
        stage->info = reinterpret_cast<const ImageInfo*>(info.typed_data());
        stage->options = {static_cast<ImageType>(output_type), adjust_orientation, fast_idct, chain->helpers};
        return ffi::Error::Success();
      });
  chain->stages.push_back(std::move(stage));
  return error;
}

ffi::Error SetUpResample(Given* given, size_t k, ResizeBatch* batch) {
  given->Begin(k, {"first_axis", "num_axes", "antialias", "convention"});
  ffi::Error (*set_up)(ResizeBatch*, F32, I32, int32_t, int32_t, bool, int32_t) = SetUp;
  return given->SetUpStage(set_up, batch);
}

template <class S, class B = decltype(S::batch)>
ffi::Error Make(Given* given, size_t k, Chain* chain, ffi::Error (*set_up)(Given*, size_t, B*) = SetUpStage) {
  auto stage = std::make_unique<S>();
  stage->batch.in = chain->values[k];
  stage->batch.out = chain->values[k + 1];
  auto error = set_up(given, k, &stage->batch);
  chain->stages.push_back(std::move(stage));
  return error;
}

ffi::Error MakeStage(std::string_view kernel, size_t k, Given* given, Chain* chain) {
  const Batch &in = chain->values[k], &out = chain->values[k + 1];
  if (out.n != chain->values[0].n || out.ndim != 3) return ffi::Error::InvalidArgument("chain: values of three axes");
  if (kernel == "decode") {
    given->Begin(k, {"output_type", "adjust_orientation", "fast_idct"});
    return MakeDecode(given, in, out, chain);
  }
  if (in.ndim != 3) return ffi::Error::InvalidArgument("chain: values of three axes");
  if (kernel == "resize") return Make<ResizeStage>(given, k, chain);
  if (kernel == "resample") return Make<ResizeStage>(given, k, chain, SetUpResample);
  if (kernel == "warp") return Make<WarpStage>(given, k, chain);
  if (kernel == "window") return Make<WindowStage>(given, k, chain);
  return ffi::Error::InvalidArgument("chain: unknown kernel");
}

// Divides the time of the call among the stages. They are at the beginning of the working memory, as that of a call of
// one kernel is.
ffi::Error Divide(int32_t passed, const std::vector<std::atomic<int64_t>>& spent, ffi::ResultBuffer<ffi::U8> memory) {
  if (memory->element_count() < spent.size() * sizeof passed) return ffi::Error::InvalidArgument("chain: times");
  double all = 0;
  for (const auto& each : spent) all += static_cast<double>(each);
  for (size_t k = 0; k < spent.size(); k++) {
    const int32_t time = all > 0 ? static_cast<int32_t>(passed * (static_cast<double>(spent[k]) / all)) : 0;
    std::memcpy(memory->typed_data() + k * sizeof time, &time, sizeof time);
  }
  return ffi::Error::Success();
}

ffi::Error RunChain(const std::vector<std::string_view>& kernels, std::vector<Batch> values, Given* given, Device,
                    I32 control, ffi::ResultBuffer<ffi::S32> status, ffi::ResultBuffer<ffi::U8> memory, bool timed) {
  const auto pool = ThreadPool::Get(control.typed_data()[0]);
  Chain chain;
  chain.helpers.pool = pool.get();
  chain.values = std::move(values);
  for (size_t k = 0; k < kernels.size(); k++)
    if (auto e = MakeStage(kernels[k], k, given, &chain); e.failure()) return e;
  if (timed) chain.spent = std::vector<std::atomic<int64_t>>(kernels.size());
  const CallTime time;
  auto error = ForEachSample(control, chain.values.front(), chain.values.back(), status, [&](int i) {
    int failed = 0;
    const Status s = chain.Run(i, &failed);
    return InStage(failed, s);
  });
  return error.success() && timed ? Divide(time.passed(), chain.spent, memory) : error;
}

#endif  // JAXDALI_CUDA

// A value between two stages has no memory. It has a type, and shapes: of each of the n samples or, without these, the
// one of `of`.
ffi::Error ToValueBetween(ffi::AnyBuffer of, I32 shapes, int n, Batch* b) {
  const bool dense = shapes.element_count() == 0;
  const auto dims = of.dimensions();
  b->n = n;
  b->ndim = dense ? static_cast<int>(dims.size()) - 1 : static_cast<int>(shapes.dimensions()[1]);
  if (!ToDType(of.element_type(), &b->dtype) || b->ndim < 0 || b->ndim > 8 ||
      (!dense && static_cast<int64_t>(shapes.element_count()) != int64_t{n} * b->ndim))
    return ffi::Error::InvalidArgument("chain: a value between two stages");
  b->shapes = b->offsets = dense ? nullptr : shapes.typed_data();  // the offsets are of no memory: any numbers do
  for (int d = 0; dense && d < b->ndim; d++) b->dense[d] = dims[static_cast<size_t>(d) + 1];
  return ffi::Error::Success();
}

ffi::Error ChainImpl(Device device, ffi::AnyBuffer data, I32 data_offsets, I32 data_shapes, I32 result_offsets,
                     I32 result_shapes, I32 given_control, ffi::RemainingArgs args, ffi::Dictionary attrs,
                     ffi::Result<ffi::AnyBuffer> result, ffi::ResultBuffer<ffi::S32> status,
                     ffi::ResultBuffer<ffi::U8> memory) {
  const auto names = attrs.get<std::string_view>("kernels");
  if (names.has_error()) return names.error();
  const auto timed = attrs.get<bool>("timed");
  if (timed.has_error()) return timed.error();
  const auto empty = attrs.get<ffi::Span<const int64_t>>("empty");
  if (empty.has_error()) return empty.error();
  std::vector<std::string_view> kernels;
  for (std::string_view rest = *names; !rest.empty();) {
    const size_t n = std::min(rest.find(' '), rest.size());
    kernels.push_back(rest.substr(0, n));
    rest.remove_prefix(std::min(n + 1, rest.size()));
  }
  if (kernels.empty() || kernels.size() > kMostStages) return ffi::Error::InvalidArgument("chain: number of stages");

  Operands operands(*empty);
  const auto [in, offsets, shapes, out_offsets, out_shapes, control] =
      operands.Next(data, data_offsets, data_shapes, result_offsets, result_shapes, given_control);
  Given given(&operands, args, attrs);
  std::vector<Batch> values(kernels.size() + 1);  // input of the first stage, then the output of each
  if (auto e = ToBatch(in, offsets, shapes, &values.front()); e.failure()) return e;
  for (size_t k = 1; k < kernels.size(); k++) {
    const int n = static_cast<int>(control.element_count()) - 1;
    auto e = given.Apply<ffi::AnyBuffer, I32>(
        [&](ffi::AnyBuffer of, I32 extents) { return ToValueBetween(of, extents, n, &values[k]); });
    if (e.failure()) return e;
  }
  if (auto e = ToBatch(*result, out_offsets, out_shapes, &values.back()); e.failure()) return e;
  return RunChain(kernels, std::move(values), &given, device, control, status, memory, *timed);
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxdali_chain, ChainImpl,
                              JAXDALI_BIND_BATCH()
                                  .RemainingArgs()
                                  .Attrs()  // those of the stages; "kernels": the names of the stages' kernels, with
                                            // spaces between; "timed"; and "empty", see Operands
                                  .Ret<ffi::AnyBuffer>()         // output of the last stage
                                  .Ret<I32>()                    // status, see InStage
                                  .Ret<ffi::Buffer<ffi::U8>>(),  // working memory; on the CPU, the times
                              JAXDALI_HANDLER_TRAITS);

}  // namespace jaxdali
