// Binding of the chain: each stage has the operands and attributes of its kernel.
#include "ffi/chain/chain.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "ffi/common/binding.h"

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
// empty, offsets, shapes), then the operands of each stage. The attributes of a stage are called "<stage>_<name>".
class Given {
 public:
  Given(ffi::RemainingArgs args, ffi::Dictionary attrs) : args_(args), attrs_(attrs) {}

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
                  std::is_same_v<T, F64>)
      return args_.get<T>(next_++);
    else
      return attrs_.get<T>(prefix_ + std::string(names_[next_name_++]));
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
  ffi::RemainingArgs args_;
  ffi::Dictionary attrs_;
  size_t next_ = 0, next_name_ = 0;
  std::string prefix_;
  std::vector<std::string_view> names_;
};

ffi::Error MakeDecode(Given* given, const Batch& in, const Batch& out, Chain* chain) {
  auto stage = std::make_unique<DecodeStage>();
  auto error = given->Apply<I32, I32, int32_t, bool, bool>(
      [&](I32 info, I32, int32_t output_type, bool adjust_orientation, bool fast_idct) {
        if (in.dtype != DType::kU8 || in.ndim != 1 ||
            static_cast<int64_t>(info.element_count()) != int64_t{out.n} * kInfoColumns)
          return ffi::Error::InvalidArgument("chain: decode: u8[size] and info i32[N, 13]");
        stage->in = in;
        stage->out = out;
        stage->info = reinterpret_cast<const ImageInfo*>(info.typed_data());
        stage->options = {static_cast<ImageType>(output_type), adjust_orientation, fast_idct, chain->helpers};
        return ffi::Error::Success();
      });
  chain->stages.push_back(std::move(stage));
  return error;
}

template <class S, class B, class... Params>
ffi::Error Make(Given* given, ffi::Error (*set_up)(B*, Params...), const Batch& in, const Batch& out, Chain* chain) {
  auto stage = std::make_unique<S>();
  stage->batch.in = in;
  stage->batch.out = out;
  auto error = given->SetUpStage(set_up, &stage->batch);
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
  if (kernel == "resize") {
    given->Begin(k, {"first_axis", "num_axes", "antialias"});
    ffi::Error (*set_up)(ResizeBatch*, F32, I32, int32_t, int32_t, bool) = SetUp;
    return Make<ResizeStage>(given, set_up, in, out, chain);
  }
  if (kernel == "resample") {
    given->Begin(k, {"first_axis", "num_axes", "antialias", "convention"});
    ffi::Error (*set_up)(ResizeBatch*, F32, I32, int32_t, int32_t, bool, int32_t) = SetUp;
    return Make<ResizeStage>(given, set_up, in, out, chain);
  }
  if (kernel == "warp") {
    given->Begin(k, {"dims", "first", "linear", "has_fill"});
    ffi::Error (*set_up)(WarpBatch*, F64, F32, int32_t, int32_t, bool, bool) = SetUp;  // three axes, so `dims` is 2
    return Make<WarpStage>(given, set_up, in, out, chain);
  }
  if (kernel == "window") {
    given->Begin(k, {"permutation", "channel"});
    ffi::Error (*set_up)(WindowBatch*, I32, I32, I32, F32, F32, F32, ffi::Span<const int64_t>, int32_t) = SetUp;
    return Make<WindowStage>(given, set_up, in, out, chain);
  }
  return ffi::Error::InvalidArgument("chain: unknown kernel");
}

// Divides the time of the call among the stages.
ffi::Error Divide(int32_t passed, const std::vector<std::atomic<int64_t>>& spent, ffi::ResultBuffer<ffi::S32> times) {
  if (times->element_count() != spent.size()) return ffi::Error::InvalidArgument("chain: times");
  double all = 0;
  for (const auto& each : spent) all += static_cast<double>(each);
  for (size_t k = 0; k < spent.size(); k++)
    times->typed_data()[k] = all > 0 ? static_cast<int32_t>(passed * (static_cast<double>(spent[k]) / all)) : 0;
  return ffi::Error::Success();
}

ffi::Error ChainImpl(Device, ffi::AnyBuffer data, I32 offsets, I32 shapes, I32 out_offsets, I32 out_shapes, I32 control,
                     ffi::RemainingArgs args, ffi::Dictionary attrs, ffi::Result<ffi::AnyBuffer> result,
                     ffi::ResultBuffer<ffi::S32> status, ffi::ResultBuffer<ffi::S32> failed,
                     ffi::ResultBuffer<ffi::S32> times) {
  auto names = attrs.get<std::string_view>("kernels");
  if (names.has_error()) return names.error();
  std::vector<std::string_view> kernels;
  for (std::string_view rest = *names; !rest.empty();) {
    const size_t n = std::min(rest.find(' '), rest.size());
    kernels.push_back(rest.substr(0, n));
    rest.remove_prefix(std::min(n + 1, rest.size()));
  }
  if (kernels.empty() || kernels.size() > kMostStages) return ffi::Error::InvalidArgument("chain: number of stages");

  const auto pool = ThreadPool::Get(control.typed_data()[0]);
  Chain chain;
  chain.helpers.pool = pool.get();
  chain.values.resize(kernels.size() + 1);
  Given given(args, attrs);
  if (auto e = ToBatch(data, offsets, shapes, &chain.values.front()); e.failure()) return e;
  for (size_t k = 1; k < kernels.size(); k++) {
    auto e = given.Apply<ffi::AnyBuffer, I32, I32>(
        [&](ffi::AnyBuffer of, I32 at, I32 extents) { return ToBatch(of, at, extents, &chain.values[k]); });
    if (e.failure()) return e;
  }
  if (auto e = ToBatch(*result, out_offsets, out_shapes, &chain.values.back()); e.failure()) return e;
  for (size_t k = 0; k < kernels.size(); k++)
    if (auto e = MakeStage(kernels[k], k, &given, &chain); e.failure()) return e;
  if (failed->element_count() != status->element_count()) return ffi::Error::InvalidArgument("chain: results");
  int32_t* at = failed->typed_data();
  std::fill_n(at, failed->element_count(), 0);
  if (times->element_count() > 0) chain.spent = std::vector<std::atomic<int64_t>>(kernels.size());
  const CallTime time;
  auto error = ForEachSample(control, chain.values.front(), chain.values.back(), status,
                             [&](int i) { return chain.Run(i, &at[i]); });
  if (error.success() && times->element_count() > 0) return Divide(time.passed(), chain.spent, times);
  return error;
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxdali_chain, ChainImpl,
                              JAXDALI_BIND_BATCH()
                                  .RemainingArgs()
                                  .Attrs()  // and "kernels": the names of the stages' kernels, separated by spaces
                                  .Ret<ffi::AnyBuffer>()  // output of the last stage
                                  .Ret<I32>()             // status
                                  .Ret<I32>()             // the stage that the status is from
                                  .Ret<I32>(),            // time of each stage, in 100 ns; or empty
                              JAXDALI_HANDLER_TRAITS);

}  // namespace jaxdali
