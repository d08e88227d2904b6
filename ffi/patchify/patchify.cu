// The patches on CUDA, with one thread per 16 bytes of the output. It divides for its first element, and again where
// the innermost axis of a patch ends.
#include "ffi/common/launch.h"
#include "ffi/common/units.h"
#include "ffi/patchify/patchify.h"

namespace jaxdali {
namespace {

struct PatchifyPlanner : PatchifyBatch {
  struct Plan {
    int64_t units;  // of 16 bytes of the output
    Units to;       // the output
    const uint8_t* in;
    PatchifyArgs args;
    Divisor size, extent[4];                          // elements of a patch, and its axes, outermost first
    Divisor block, merge, block_columns, block_rows;  // patches of a block and of its rows; blocks of a frame
  };

  // Fills in the plan of sample i: what the threads that work on it need.
  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    PatchifyArgs& a = s->args;
    if (Status status = Sample(i, &a); status != kOk) return status;
    s->units = s->to.Set(a.out, a.written * a.size, out.dtype);
    s->in = in.bytes(i);
    s->size = Divisor(a.size);
    for (int k = 0; k < 4; k++) s->extent[k] = Divisor(a.extent[axes[k]]);
    s->block = Divisor(a.merge * a.merge);
    s->merge = Divisor(a.merge);
    s->block_columns = Divisor(a.columns / a.merge);
    s->block_rows = Divisor(a.rows / a.merge);
    return kOk;
  }
};

template <class In, class Out>
struct Patches : PatchifyPlanner {
  using Planner = PatchifyPlanner;

  // The work of a thread: units first, first + kThreads, ... of the output, 16 bytes each.
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    for (int64_t k = first; k < end; k += kThreads) {
      int64_t i = s.to.First(k);
      Run run = RunAt(s, i);
      s.to.template WriteInLoop<Out>(k, [&] {
        if (run.left == 0) run = RunAt(s, i);
        i++;
        run.left--;
        if (run.from < 0) return ConvertTo<Out>(0.0f);
        float v = LoadAs<float, In>(in.dtype, s.in, run.from);
        if (s.args.scales > 0) v = v * s.args.Scale(run.channel) + s.args.Offset(run.channel);
        run.from += run.step;
        run.channel += run.channel_step;
        return ConvertTo<Out>(v);
      });
    }
  }

 private:
  // Elements of the output along the innermost axis of a patch.
  struct Run {
    int64_t from, step;  // the first one's number in the input, -1: zeros; from one to the next
    int64_t channel, channel_step;
    int64_t left;  // how many
  };

  // The run that begins at element i of the output.
  JAXDALI_NOINLINE JAXDALI_HD Run RunAt(const Plan& s, int64_t i) const {
    const PatchifyArgs& a = s.args;
    const auto token = s.size.Divide(static_cast<uint64_t>(i));
    if (static_cast<int64_t>(token.quotient) >= a.tokens) return {-1, 0, 0, 0, a.written * a.size - i};
    const auto block = s.block.Divide(token.quotient), column = s.block_columns.Divide(block.quotient),
               row = s.block_rows.Divide(column.quotient), in_block = s.merge.Divide(block.rest);
    int64_t index[4];  // in the patch, by PatchAxis
    uint64_t rest = token.rest;
    for (int k = 3; k >= 0; k--) {
      const auto q = s.extent[k].Divide(rest);
      index[axes[k]] = static_cast<int64_t>(q.rest);
      rest = q.quotient;
    }
    auto number = [](uint64_t blocks, int64_t merge, uint64_t of_block) {
      return static_cast<int64_t>(blocks) * merge + static_cast<int64_t>(of_block);
    };
    int64_t frame = static_cast<int64_t>(row.quotient) * a.extent[kPatchFrame] + index[kPatchFrame];
    frame = frame < a.frames ? frame : a.frames - 1;  // the last frame again
    const int64_t y = number(row.rest, a.merge, in_block.quotient) * a.extent[kPatchRow] + index[kPatchRow],
                  x = number(column.rest, a.merge, in_block.rest) * a.extent[kPatchColumn] + index[kPatchColumn];
    const int last = axes[3];
    const int64_t left = last == kPatchFrame ? 1 : a.extent[last] - index[last];  // the last frame has no step
    const int64_t step = last == kPatchChannel ? 1 : last == kPatchColumn ? a.channels : a.width * a.channels;
    return {((frame * a.height + y) * a.width + x) * a.channels + index[kPatchChannel], step, index[kPatchChannel],
            last == kPatchChannel ? 1 : 0, left};
  }
};

template <class In>
const char* LaunchPatches(const PatchifyBatch& b, const Samples& samples, void* stream) {
  switch (b.out.dtype) {
    case DType::kU8:
      return Launch(Patches<In, uint8_t>{{b}}, samples, stream);
    case DType::kF16:
      return Launch(Patches<In, Half>{{b}}, samples, stream);
    case DType::kBF16:
      return Launch(Patches<In, BFloat16>{{b}}, samples, stream);
    default:
      return Launch(Patches<In, float>{{b}}, samples, stream);
  }
}

}  // namespace

const char* LaunchPatchify(const PatchifyBatch& b, const Samples& samples, void* stream) {
  if (b.place) return "patchify: places are for chains on the CPU";
  if (b.in.dtype == DType::kU8) return LaunchPatches<uint8_t>(b, samples, stream);
  return LaunchPatches<AnyType>(b, samples, stream);
}

}  // namespace jaxdali
