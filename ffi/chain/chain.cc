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

#include "ffi/chain/set_up.h"
#include "ffi/chain/windowed.h"
#include "ffi/common/binding.h"
#include "ffi/common/stages.h"
#include "ffi/resample/resample.h"

namespace jaxdali {

namespace {

// The operands and attributes of a call beside its batch. First come the inputs of all stages but the first (data,
// which are empty, and shapes), then the operands of each stage. The attributes of a stage are called "<stage>_<name>".
class StageOperands {
 public:
  StageOperands(Operands* shaper, ffi::RemainingArgs args, ffi::Dictionary attrs)
      : shaper_(shaper), args_(args), attrs_(attrs) {}

  // Sets the attributes of S, which are those of a stage. Returns an error if one is missing.
  template <class S>
  ffi::Error SetStageAttributes(size_t stage, S* s) const {
    ffi::Error error = ffi::Error::Success();
    size_t k = 0;
    auto set = [&]<class T>(T& member) {
      const auto value = attrs_.get<AttributeType<T>>(std::to_string(stage) + "_" + AttributeName<S>(k++));
      if (value.has_error())
        error = value.error();
      else
        SetMember(&member, *value);
      return error.success();
    };
    std::apply([&](auto&... member) { (void)(set(member) && ...); }, s->Attributes());
    return error;
  }

  // The next operand.
  template <class T>
  ffi::ErrorOr<T> Next() {
    auto operand = args_.get<T>(next_++);
    if (operand.has_error()) return operand;
    return std::get<0>(shaper_->Next(*operand));
  }

  // Gives a batch the attributes of stage k, and to its kernel's SetUp the operands that follow.
  template <class B, class... Params>
  ffi::Error SetUpStage(ffi::Error (*set_up)(B*, Params...), size_t k, B* batch) {
    if (auto e = SetStageAttributes(k, batch); e.failure()) return e;
    return Apply<Params...>([&](Params... params) { return set_up(batch, params...); });
  }

  // Calls f(next ...). Returns an error if an operand is missing.
  template <class... Params, class F>
  ffi::Error Apply(F f) {
    std::tuple<ffi::ErrorOr<Params>...> values{Next<Params>()...};  // braces: from left to right
    return std::apply(
        [&](auto&... value) {
          ffi::Error error = ffi::Error::Success();
          ((value.has_error() && error.success() ? void(error = value.error()) : void()), ...);  // the first error
          return error.failure() ? error : f(*value...);
        },
        values);
  }

 private:
  Operands* shaper_;  // gives operands their own shapes
  ffi::RemainingArgs args_;
  ffi::Dictionary attrs_;
  size_t next_ = 0;  // number of the next operand
};

#ifdef JAXDALI_CUDA

// Launches the kernel of stage 0, which writes the window of stage 1. values: input, image between, output. B is the
// batch of stage 0, and `set_up` its kernel's.
template <class B, class... Params>
ffi::Error Launch(ffi::Error (*set_up)(B*, Params...), StageOperands* operands, const std::vector<Batch>& values,
                  Device device, I32 control, ffi::ResultBuffer<ffi::S32> status, uint8_t* plans) {
  Windowed<B> b{};
  b.in = b.maker.in = values[0];
  b.maker.out = b.window.in = values[1];
  b.out = b.window.out = values[2];
  if (auto e = operands->SetUpStage(set_up, /*k=*/0, &b.maker); e.failure()) return e;
  if (auto e = operands->SetUpStage(SetUpWindow, /*k=*/1, &b.window); e.failure()) return e;
  const char* (*launch)(const Windowed<B>&, const Samples&, void*) = LaunchWindowed;
  return LaunchKernel(launch, b, device, control, status, plans);
}

// Runs the stages. On a GPU there are few chains: see chain.cu.
ffi::Error RunChain(const std::vector<std::string_view>& kernels, std::vector<Batch> values, StageOperands* operands,
                    Device device, I32 control, ffi::ResultBuffer<ffi::S32> status, ffi::ResultBuffer<ffi::U8> memory,
                    bool /*timed*/) {
  if (kernels.size() != 2 || kernels[1] != "window") return ffi::Error::InvalidArgument("chain: stages");
  if (static_cast<int64_t>(memory->element_count()) < values[2].n * kPlanBytes)
    return ffi::Error::InvalidArgument("too little working memory");
  values[1].capacity = std::numeric_limits<int64_t>::max();  // the value between has no memory, so all images fit
  uint8_t* plans = memory->typed_data();
  if (kernels[0] == "resize") return Launch(SetUpResize, operands, values, device, control, status, plans);
  if (kernels[0] == "warp") return Launch(SetUpWarp, operands, values, device, control, status, plans);
  return ffi::Error::InvalidArgument("chain: unknown kernel");
}

#else

// Adds the stage of `decode`, whose operands are those of decode.cc: info, and the tables, which only CUDA uses.
ffi::Error MakeDecode(StageOperands* operands, size_t k, Chain* chain) {
  auto stage = std::make_unique<DecodeStage>();
  stage->in = chain->values[k];
  stage->out = chain->values[k + 1];
  stage->options.helpers = chain->helpers;
  if (auto e = operands->SetStageAttributes(k, &stage->options); e.failure()) return e;
  auto error = operands->Apply<I32, I32>([&](I32 info, I32) {
    if (stage->in.dtype != DType::kU8 || stage->in.ndim != 1 || !HasRows(info, *stage, kInfoColumns))
      return ffi::Error::InvalidArgument("chain: decode: u8[size] and info i32[N, INFO_COLUMNS]");
    stage->info = reinterpret_cast<const ImageInfo*>(info.typed_data());
    return ffi::Error::Success();
  });
  chain->stages.push_back(std::move(stage));
  return error;
}

// Adds stage k, of class S, with its operands. B: the kernel's batch.
template <class S, class B, class... Params>
ffi::Error Make(ffi::Error (*set_up)(B*, Params...), StageOperands* operands, size_t k, Chain* chain) {
  B batch{};
  batch.in = chain->values[k];
  batch.out = chain->values[k + 1];
  auto error = operands->SetUpStage(set_up, k, &batch);
  auto stage = std::make_unique<S>();
  static_assert(sizeof(B) == sizeof(S::batch));  // a ResampleBatch becomes a ResizeBatch, and may have no more members
  stage->batch = batch;
  chain->stages.push_back(std::move(stage));
  return error;
}

// Adds the stage of `patchify`, which is the last one.
ffi::Error MakePatchify(StageOperands* operands, size_t k, Chain* chain) {
  if (k + 2 != chain->values.size() || chain->values[k].ndim != 3)
    return ffi::Error::InvalidArgument("chain: patchify must be the last stage, and its input have three axes");
  auto error = Make<PatchifyStage>(SetUpPatchify, operands, k, chain);
  chain->place = static_cast<const PatchifyStage&>(*chain->stages.back()).batch.place;
  return error;
}

// Adds stage k by the name of its kernel. To support another kernel, add a case here and a Stage.
ffi::Error MakeStage(std::string_view kernel, size_t k, StageOperands* operands, Chain* chain) {
  const Batch &in = chain->values[k], &out = chain->values[k + 1];
  if (kernel == "patchify") return MakePatchify(operands, k, chain);
  if (out.n != chain->values[0].n || out.ndim != 3) return ffi::Error::InvalidArgument("chain: values of three axes");
  if (kernel == "decode") return MakeDecode(operands, k, chain);
  if (in.ndim != 3) return ffi::Error::InvalidArgument("chain: values of three axes");
  if (kernel == "resize") return Make<ResizeStage>(SetUpResize, operands, k, chain);
  if (kernel == "resample") return Make<ResizeStage>(SetUpResample, operands, k, chain);
  if (kernel == "warp") return Make<WarpStage>(SetUpWarp, operands, k, chain);
  if (kernel == "window") return Make<WindowStage>(SetUpWindow, operands, k, chain);
  return ffi::Error::InvalidArgument("chain: unknown kernel");
}

// Divides the time of the call among the stages, in proportion to their ticks. Writes the times to the beginning of the
// working memory, where a call of one kernel has its only one.
ffi::Error WriteTimes(int32_t elapsed, const std::vector<std::atomic<int64_t>>& ticks,
                      ffi::ResultBuffer<ffi::U8> memory) {
  if (memory->element_count() < ticks.size() * sizeof elapsed) return ffi::Error::InvalidArgument("chain: times");
  double total = 0;
  for (const auto& stage_ticks : ticks) total += static_cast<double>(stage_ticks);
  for (size_t k = 0; k < ticks.size(); k++) {
    const int32_t time = total > 0 ? static_cast<int32_t>(elapsed * (static_cast<double>(ticks[k]) / total)) : 0;
    std::memcpy(memory->typed_data() + k * sizeof time, &time, sizeof time);
  }
  return ffi::Error::Success();
}

// ForEachSample where several samples of the input become one of the output, which is dense: chain.place says where.
// Samples of the output without a present image are filled with zeros.
template <class Task>
ffi::Error ForEachPlaced(I32 control, const Chain& chain, ffi::ResultBuffer<ffi::S32> status, Task task) {
  const Batch &in = chain.values.front(), &out = chain.values.back();
  const int n = in.n;
  if (static_cast<int>(status->element_count()) != n || static_cast<int>(control.element_count()) != n + 1)
    return ffi::Error::InvalidArgument("batch sizes of the operands differ");
  const int32_t* present = control.typed_data() + 1;
  int32_t* code = status->typed_data();
  std::vector<bool> is_filled(static_cast<size_t>(out.n));
  std::vector<int64_t> cost(static_cast<size_t>(n));
  for (int i = 0; i < n; i++) {
    const int32_t sample = chain.place[int64_t{3} * i];
    if (present[i] && sample >= 0 && sample < out.n) is_filled[static_cast<size_t>(sample)] = true;
    cost[static_cast<size_t>(i)] = present[i] && in.valid(i) ? in.size(i) : 0;
  }
  std::vector<int> unfilled;
  for (int b = 0; b < out.n; b++)
    if (!is_filled[static_cast<size_t>(b)]) unfilled.push_back(b);
  cost.resize(cost.size() + unfilled.size());
  const size_t bytes = static_cast<size_t>(out.size(0) * SizeOf(out.dtype));
  AdviseHugePages(out.data, bytes * static_cast<size_t>(out.n));
  auto work = [&](int i) {
    if (i >= n)
      std::memset(out.bytes(unfilled[static_cast<size_t>(i - n)]), 0, bytes);
    else
      code[i] = !present[i] ? kOk : in.valid(i) ? StatusOf(task, i) : kInternal;
  };
  const bool has_pool = RunOnPool(
      control.typed_data()[0], static_cast<int>(cost.size()),
      [](void* context, int i) { (*static_cast<decltype(work)*>(context))(i); }, &work, LargestFirst(cost).data());
  return has_pool ? ffi::Error::Success() : ffi::Error::Internal("unknown thread pool");
}

// Makes the stages of the chain, and runs them sample by sample. With `timed`, writes the time of each stage to
// `memory`.
ffi::Error RunChain(const std::vector<std::string_view>& kernels, std::vector<Batch> values, StageOperands* operands,
                    Device, I32 control, ffi::ResultBuffer<ffi::S32> status, ffi::ResultBuffer<ffi::U8> memory,
                    bool timed) {
  const auto pool = ThreadPool::Get(control.typed_data()[0]);  // null: an unknown id, which ForEachSample reports
  Chain chain;
  chain.helpers.pool = pool.get();
  chain.values = std::move(values);
  for (size_t k = 0; k < kernels.size(); k++)
    if (auto e = MakeStage(kernels[k], k, operands, &chain); e.failure()) return e;
  if (timed) chain.ticks = std::vector<std::atomic<int64_t>>(kernels.size());
  const CallTime time;
  auto run = [&](int i) {
    int failed = 0;  // the stage
    const Status s = chain.Run(i, &failed);
    return InStage(failed, s);
  };
  auto error = chain.place ? ForEachPlaced(control, chain, status, run)
                           : ForEachSample(control, chain.values.front(), chain.values.back(), status, run);
  return error.success() && timed ? WriteTimes(time.elapsed(), chain.ticks, memory) : error;
}

#endif  // JAXDALI_CUDA

// Describes a value between two stages as a batch without memory. It has a type, and shapes: of each of the n samples
// or, without these, the one of `value`, whose first axis is the batch.
ffi::Error ToValueBetween(ffi::AnyBuffer value, I32 shapes, int n, Batch* b) {
  const bool is_dense = shapes.element_count() == 0;
  const auto dims = value.dimensions();
  b->n = n;
  b->ndim = is_dense ? static_cast<int>(dims.size()) - 1 : static_cast<int>(shapes.dimensions()[1]);
  if (!ToDType(value.element_type(), &b->dtype) || b->ndim < 0 || b->ndim > 8 ||
      (!is_dense && static_cast<int64_t>(shapes.element_count()) != int64_t{n} * b->ndim))
    return ffi::Error::InvalidArgument("chain: a value between two stages");
  b->shapes = b->offsets = is_dense ? nullptr : shapes.typed_data();  // the offsets are of no memory: any numbers do
  for (int d = 0; is_dense && d < b->ndim; d++) b->dense[d] = dims[static_cast<size_t>(d) + 1];
  return ffi::Error::Success();
}

// The custom call: describes all values as batches, then runs the chain. `args` has the inputs of all stages but the
// first and the operands of all stages, and `attrs` their attributes (StageOperands). `result` is the output of the
// last stage, `status` is as InStage has it, and `memory` gets the times on the CPU.
ffi::Error ChainImpl(Device device, ffi::AnyBuffer data, I32 data_offsets, I32 data_shapes, I32 result_offsets,
                     I32 result_shapes, I32 raw_control, ffi::Result<ffi::AnyBuffer> result,
                     ffi::ResultBuffer<ffi::S32> status, ffi::ResultBuffer<ffi::U8> memory, ffi::RemainingArgs args,
                     ffi::Dictionary attrs) {
  const auto names = attrs.get<std::string_view>("kernels");
  if (names.has_error()) return names.error();
  const auto timed = attrs.get<bool>("timed");
  if (timed.has_error()) return timed.error();
  const auto empty = attrs.get<ffi::Span<const int64_t>>("empty");
  if (empty.has_error()) return empty.error();
  std::vector<std::string_view> kernels;
  for (std::string_view rest = *names; !rest.empty();) {  // splits at spaces
    const size_t n = std::min(rest.find(' '), rest.size());
    kernels.push_back(rest.substr(0, n));
    rest.remove_prefix(std::min(n + 1, rest.size()));
  }
  if (kernels.empty() || kernels.size() > kMostStages) return ffi::Error::InvalidArgument("chain: number of stages");

  Operands operands(*empty);
  const auto [in, offsets, shapes, out_offsets, out_shapes, control] =
      operands.Next(data, data_offsets, data_shapes, result_offsets, result_shapes, raw_control);
  StageOperands stage_operands(&operands, args, attrs);
  std::vector<Batch> values(kernels.size() + 1);  // input of the first stage, then the output of each
  if (auto e = ToBatch(in, offsets, shapes, &values.front()); e.failure()) return e;
  for (size_t k = 1; k < kernels.size(); k++) {
    const int n = static_cast<int>(control.element_count()) - 1;
    auto e = stage_operands.Apply<ffi::AnyBuffer, I32>(
        [&](ffi::AnyBuffer value, I32 extents) { return ToValueBetween(value, extents, n, &values[k]); });
    if (e.failure()) return e;
  }
  if (auto e = ToBatch(*result, out_offsets, out_shapes, &values.back()); e.failure()) return e;
  return RunChain(kernels, std::move(values), &stage_operands, device, control, status, memory, *timed);
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    jaxdali_chain, ChainImpl,
    JAXDALI_BIND_BATCH().RemainingArgs().Attrs(),  // those of the stages; "kernels": the names of the stages' kernels,
                                                   // with spaces between; "timed"; and "empty", see Operands
    JAXDALI_HANDLER_TRAITS);

}  // namespace jaxdali
