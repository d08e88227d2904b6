// Medians of windows on CUDA. A block loads what a tile depends on into shared memory: medians of 3 x 3 and 5 x 5
// elements are made by networks in registers, others of bytes by histograms, all others by selection.
#include "ffi/common/launch.h"
#include "ffi/stencil/median.h"
#include "ffi/stencil/stencil.h"
#include "ffi/stencil/stencil_kernel.h"

namespace jaxdali {
namespace {

// V is the type of the values of a tile: bytes if input and output are bytes, otherwise floats.
template <class V>
struct Medians : StencilBatch {
  static constexpr int kBlocksPerSm = 2;
  using Type = std::conditional_t<std::is_same_v<V, uint8_t>, uint8_t, AnyType>;  // of input and output
  static constexpr bool kBytes = std::is_same_v<V, uint8_t>;
  static constexpr int kRows = 32, kSteps = 8;   // of a tile for networks, results of a thread
  static constexpr int kEach = kBytes ? 4 : 1;   // elements of a thread in a row
  static constexpr int kColumns = 64 * kEach;    // of such a tile
  static constexpr int kHistogramBytes = 32768;  // 256 counts for each of 128 threads, or 64
  static constexpr int kMemory = kHistogramBytes + 9728;

  // How a tile is made: networks for 3 x 3 and 5 x 5; histograms of 8 or 16 bits for bytes; selection from a tile in
  // shared memory; selection from device memory, without tiles.
  enum Kind { kNetwork3, kNetwork5, kHistogram, kLongHistogram, kTiles, kElements };

  struct Plan : StencilArgs {
    int64_t pieces;                      // tiles, or groups of kThreads elements
    int32_t kind, rows, columns, pitch;  // of a tile; kind: a Kind; pitch: elements of a row that it depends on
    Divisor across, down;                // tiles of a plane
    Divisor inner_n;                     // `inner` as a divisor
    V beyond;                            // the value beyond a constant border
  };
  struct TilePlace {
    int64_t plane, y, column;  // column: the first element in a row
    int32_t rows, columns;
  };
  struct Shared {
    Plan plan;
    TilePlace place;
    alignas(16) uint8_t memory[kMemory];
  };
  WorkSplit split;

  // Fills in the plan of sample i: what the threads that work on it need. Without tiles, a piece is kThreads elements.
  JAXDALI_HD Status Prepare(int i, Plan* a) const {
    if (Status s = Sample(i, a); s != kOk) return s;
    a->beyond = ConvertTo<V>(a->fill);  // rounding does not change the order, so it may come before the median
    a->inner_n = Divisor(a->inner);
    // Axes 0, 1 and 2 are planes, rows and columns. With tiles, the output has the input's planes (HasTiles).
    const int64_t row = a->out_n[2] * a->inner, halo = (a->window[2] - 1) * a->inner;
    if (a->HasTiles() && ChooseTile(a, halo)) {
      a->across = Divisor((row + a->columns - 1) / a->columns);
      a->down = Divisor((a->out_n[1] + a->rows - 1) / a->rows);
      a->pieces = a->outer * a->n[0] * a->across.n() * a->down.n();
    } else {
      a->kind = kElements;
      a->pieces = (a->Size() + kThreads - 1) / kThreads;
    }
    return kOk;
  }
  JAXDALI_HD static int64_t CountPieces(const Plan& a) { return a.pieces; }

  // The work of one CUDA block: its share of the pieces of all samples. Of a tile, it loads all elements that the
  // windows have into shared memory, then makes the medians.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    split.ForEach(block, s, [&](int64_t first, int64_t end) {
      for (int64_t piece = first; piece < end; piece++) {
        if (s.plan.kind == kElements) {
          block.Phase([&](int thread) {
            if (piece * kThreads + thread < s.plan.Size()) Element(s.plan, piece * kThreads + thread);
          });
          continue;
        }
        const bool is_histogram = s.plan.kind == kHistogram || s.plan.kind == kLongHistogram;
        V* const tile = reinterpret_cast<V*>(s.memory + (is_histogram ? kHistogramBytes : 0));
        block.Phase([&](int thread) {
          if (thread == 0) s.place = Find(s.plan, piece);
        });
        block.Phase([&](int thread) {
          LoadTile(s.plan, s.place, thread, tile);
          if (is_histogram) Clear(thread, s.memory);
        });
        block.Phase([&](int thread) {
          const TilePlace& t = s.place;
          switch (s.plan.kind) {
            case kNetwork3:
              return Network<3>(s.plan, t, thread, tile);
            case kNetwork5:
              return Network<5>(s.plan, t, thread, tile);
            case kHistogram:
              return Histogram<uint8_t>(s.plan, t, thread, tile, s.memory);
            case kLongHistogram:
              return Histogram<uint16_t>(s.plan, t, thread, tile, s.memory);
            default:
              return Selections(s.plan, t, thread, tile);
          }
        });
      }
    });
  }

 private:
  // Chooses how medians are made and the size of a tile. Returns false if the rows that a tile depends on don't fit.
  // `halo`: elements by which these rows are longer than those of the tile.
  JAXDALI_HD static bool ChooseTile(Plan* a, int64_t halo) {
    const bool is3 = a->window[1] == 3 && a->window[2] == 3, is5 = a->window[1] == 5 && a->window[2] == 5;
    const bool is_histogram = kBytes && !is3 && !is5;
    // Counts of fewer than 256 values fit 8 bits. A histogram serves one column, so a tile has as many columns as
    // histograms fit into memory.
    a->kind = is3 ? kNetwork3 : is5 ? kNetwork5 : !kBytes ? kTiles : a->Taps() < 256 ? kHistogram : kLongHistogram;
    a->columns = !is_histogram ? kColumns : a->kind == kHistogram ? 128 : 64;
    const int64_t pitch = (a->columns + halo + 7) / 4 * 4;  // some more, because bytes are read by words
    const int64_t memory = (kMemory - (is_histogram ? kHistogramBytes : 0)) / static_cast<int64_t>(sizeof(V));
    if (pitch > memory) return false;
    const int64_t rows = memory / pitch - (a->window[1] - 1), most = is_histogram ? 64 : kRows;
    a->pitch = static_cast<int32_t>(pitch);
    a->rows = static_cast<int32_t>(rows < most ? rows : most);
    // A thread of a network always reads the rows of kSteps results, so the memory must hold those of all kRows. Other
    // kinds need kSteps rows at least.
    return a->rows >= (is3 || is5 ? kRows : kSteps);
  }

  // The place of a tile. Pieces count tiles across, then down, then planes.
  JAXDALI_HD static TilePlace Find(const Plan& a, int64_t piece) {
    const auto q = a.across.Divide(static_cast<uint64_t>(piece)), p = a.down.Divide(q.quotient);
    const int64_t row = a.out_n[2] * a.inner;
    TilePlace t;
    t.plane = static_cast<int64_t>(p.quotient);
    t.y = static_cast<int64_t>(p.rest) * a.rows;
    t.column = static_cast<int64_t>(q.rest) * a.columns;
    t.rows = static_cast<int32_t>(a.out_n[1] - t.y < a.rows ? a.out_n[1] - t.y : a.rows);
    t.columns = static_cast<int32_t>(row - t.column < a.columns ? row - t.column : a.columns);
    return t;
  }

  // Loads the elements that a tile depends on, with those beyond the border. Each warp loads rows.
  JAXDALI_HD void LoadTile(const Plan& a, const TilePlace& t, int thread, V* tile) const {
    const int64_t row = a.n[2] * a.inner, shift = a.anchor[2] * a.inner, column = t.column;
    const int32_t width = t.columns + static_cast<int32_t>((a.window[2] - 1) * a.inner), pitch = a.pitch;
    const int32_t rows = t.rows + static_cast<int32_t>(a.window[1]) - 1;
    const int64_t first_y = t.y - a.anchor[1], plane = t.plane * a.n[1];
    const uint8_t* const in_bytes = static_cast<const uint8_t*>(a.in);
    for (int32_t m = thread / 32; m < rows; m += kThreads / 32) {
      const int64_t y = Inside(border, first_y + m, a.n[1]), start = (plane + (y < 0 ? 0 : y)) * row;
      V* const to = tile + m * pitch;
      // Four bytes are loaded from two words, which begin at most 3 bytes before them, and end at most 8 bytes behind
      // the first one. Both are inside the row for an index of safe_begin to safe_end; rows beyond a constant border
      // have none.
      const int64_t safe_begin = y < 0 ? row : 3, safe_end = row - 8;
      for (int32_t e = thread % 32 * kEach; e < width; e += 32 * kEach) {
        const int64_t index = column + e - shift;
        if (kBytes && index >= safe_begin && index <= safe_end) {
          const uint8_t* from = in_bytes + start + index;
          const int offset_in_word = static_cast<int>(reinterpret_cast<uintptr_t>(from) & 3);
          WriteWord(reinterpret_cast<uint8_t*>(to + e),
                    Funnel(ReadWord(from - offset_in_word), ReadWord(from - offset_in_word + 4), 8 * offset_in_word));
          continue;
        }
        for (int32_t k = e; k < e + kEach; k++) to[k] = y < 0 ? a.beyond : ElementOfRow(a, start, column + k, shift);
      }
    }
  }
  // Element i - shift of the row that begins with element `start` of the input.
  JAXDALI_HD V ElementOfRow(const Plan& a, int64_t start, int64_t i, int64_t shift) const {
    int64_t index = i - shift;
    // Beyond the border, by pixel and channel: i is divided, because it is not negative, and the anchor subtracted
    // after.
    if (index < 0 || index >= a.n[2] * a.inner) {
      const auto q = a.inner_n.Divide(static_cast<uint64_t>(i));
      const int64_t x = Inside(border, static_cast<int64_t>(q.quotient) - a.anchor[2], a.n[2]);
      if (x < 0) return a.beyond;
      index = x * a.inner + static_cast<int64_t>(q.rest);
    }
    if constexpr (kBytes)
      return static_cast<const uint8_t*>(a.in)[start + index];
    else
      return LoadElement<float>(in.dtype, a.in, start + index);
  }

  // Medians of kTaps x kTaps elements. A thread has kSteps results below each other, of four bytes or of one float. The
  // width of a tile is that of 64 threads.
  template <int kTaps>
  JAXDALI_HD void Network(const Plan& a, const TilePlace& t, int thread, const V* tile) const {
    const int32_t y = thread / 64 * kSteps, column = thread % 64 * kEach, inner = static_cast<int32_t>(a.inner);
    const int32_t pitch = a.pitch;
    if (y >= t.rows || column >= t.columns) return;
    const V* const from = tile + y * pitch + column;
    const int64_t row = a.out_n[2] * a.inner;
    int64_t to = (t.plane * a.out_n[1] + t.y + y) * row + t.column + column;
    if constexpr (kBytes) {
      uint32_t words[kSteps] = {};
      JAXDALI_UNROLL_BY(1)
      for (int odd = 0; odd < 2; odd++) {  // bytes 0 and 2 of each word as Halves, then 1 and 3
        auto load = [&](int m, int x) -> median::Halves {
          // The word that begins at the thread's first byte of the tap may lie across two words of memory.
          const int32_t byte = x * inner, offset_in_word = byte % 4 + odd;
          const uint8_t* word = from + m * pitch + byte / 4 * 4;
          const auto selector = static_cast<uint32_t>(offset_in_word | (offset_in_word + 2) << 8);
          median::Halves v;  // not in braces, which nvcc loses in the host's part
          v.bits = Permute(ReadShared(word), ReadShared(word + 4), selector) & 0xFF00FF;
          return v;
        };
        auto put = [&](int m, median::Halves v) { words[m] |= v.bits << (8 * odd); };
        if constexpr (kTaps == 3)
          median::Medians3<median::Halves, kSteps>(load, put);
        else
          median::Medians5<median::Halves, kSteps>(load, put);
      }
      uint8_t* out = static_cast<uint8_t*>(a.out) + to;
      JAXDALI_UNROLL
      for (int m = 0; m < kSteps; m++, out += row)
        if (y + m < t.rows) StoreWord(out, t.columns - column, words[m]);
    } else {
      auto load = [&](int m, int x) { return from[m * pitch + x * inner]; };
      auto put = [&](int m, float v) {
        if (y + m < t.rows) StoreElement(out.dtype, a.out, to + m * row, v);
      };
      if constexpr (kTaps == 3)
        median::Medians3<float, kSteps>(load, put);
      else
        median::Medians5<float, kSteps>(load, put);
    }
  }
  JAXDALI_HD static uint32_t ReadShared(const uint8_t* p) {
    uint32_t word;
    std::memcpy(&word, __builtin_assume_aligned(p, 4), 4);
    return word;
  }
  // Stores the first n bytes of a word, at most four.
  JAXDALI_HD static void StoreWord(uint8_t* to, int32_t n, uint32_t word) {
    if (n >= 4 && reinterpret_cast<uintptr_t>(to) % 4 == 0) return WriteWord(to, word);
    JAXDALI_UNROLL
    for (int k = 0; k < 4; k++)
      if (k < n) to[k] = static_cast<uint8_t>(word >> (8 * k));
  }

  JAXDALI_HD static void Clear(int thread, uint8_t* histograms) {
    const uint32_t zeros[4] = {};
    for (int i = 16 * thread; i < kHistogramBytes; i += 16 * kThreads) WriteWords(histograms + i, zeros);
  }
  // A thread has a column of results. Its histogram counts the values of the window, which moves down. `memory` has the
  // counts [value, thread], so that neighbouring threads access neighbouring ones.
  template <class Count>
  JAXDALI_HD void Histogram(const Plan& a, const TilePlace& t, int thread, const V* tile, uint8_t* memory) const {
    if constexpr (kBytes) {
      constexpr int kHistograms = kHistogramBytes / 256 / static_cast<int>(sizeof(Count));
      if (thread >= t.columns) return;
      Count* const counts = reinterpret_cast<Count*>(memory);
      const int32_t rank = static_cast<int32_t>(a.Taps() / 2), inner = static_cast<int32_t>(a.inner);
      const int32_t down = static_cast<int32_t>(a.window[1]), across = static_cast<int32_t>(a.window[2]);
      const uint8_t* from = tile + thread;
      auto place = [&](const uint8_t* p) { return *p * kHistograms + thread; };  // of the count of a value
      // The count of the median, which begins with the value in the middle of the first window.
      int32_t median = place(from + down / 2 * a.pitch + across / 2 * inner);
      int32_t below = 0;                                    // values of the window that are smaller than the median
      auto count = [&](const uint8_t* p, int32_t change) {  // adds a row of the window (1), or takes it away (-1)
        for (int32_t x = 0; x < across; x++, p += inner) {
          const int32_t bin = place(p);
          counts[bin] = static_cast<Count>(counts[bin] + change);
          below += bin < median ? change : 0;
        }
      };
      for (int32_t m = 0; m < down - 1; m++) count(from + m * a.pitch, 1);
      const int64_t row = a.out_n[2] * a.inner;
      uint8_t* to = static_cast<uint8_t*>(a.out) + (t.plane * a.out_n[1] + t.y) * row + t.column + thread;
      for (int32_t y = 0; y < t.rows; y++, from += a.pitch, to += row) {
        // Adds the lowest row of the window, moves the median until it has the right rank, and takes the highest row
        // away.
        count(from + (down - 1) * a.pitch, 1);
        while (below > rank) below -= counts[median -= kHistograms];
        for (int32_t n; below + (n = counts[median]) <= rank; median += kHistograms) below += n;
        *to = static_cast<uint8_t>(median / kHistograms);
        count(from, -1);
      }
    }
  }

  // Medians of other windows from a tile of floats.
  JAXDALI_HD void Selections(const Plan& a, const TilePlace& t, int thread, const V* tile) const {
    const int32_t inner = static_cast<int32_t>(a.inner);
    for (int32_t u = thread; u < t.rows * kColumns; u += kThreads) {
      const int32_t y = u / kColumns, column = u % kColumns;
      if (column >= t.columns) continue;
      const V* const from = tile + y * a.pitch + column;
      const float median =
          median::Select(a.Taps() / 2, from[a.window[1] / 2 * a.pitch + a.window[2] / 2 * inner], [&](auto f) {
            for (int32_t m = 0; m < a.window[1]; m++)
              for (int32_t x = 0; x < a.window[2]; x++) f(from[m * a.pitch + x * inner]);
          });
      StoreAs<Type>(out.dtype, a.out, (t.plane * a.out_n[1] + t.y + y) * a.out_n[2] * a.inner + t.column + column,
                    median);
    }
  }

  // Element i of the result, from device memory.
  JAXDALI_HD void Element(const Plan& a, int64_t i) const {
    const Place p(a, i);
    auto value = [&](int64_t z, int64_t y, int64_t x) { return ValueAt(a, in.dtype, border, a.fill, p, z, y, x); };
    const float first = value(a.window[0] / 2, a.window[1] / 2, a.window[2] / 2);
    const float median = median::Select(a.Taps() / 2, first, [&](auto f) {
      for (int64_t z = 0; z < a.window[0]; z++)
        for (int64_t y = 0; y < a.window[1]; y++)
          for (int64_t x = 0; x < a.window[2]; x++) f(value(z, y, x));
    });
    StoreAs<Type>(out.dtype, a.out, i, median);
  }
};

}  // namespace

// Launches medians of bytes, or of any other types as floats. Returns null or an error message.
const char* LaunchMedians(const StencilBatch& b, const Samples& samples, void* stream) {
  const int64_t pieces = b.out.capacity / kThreads + samples.n;
  if (b.in.dtype == DType::kU8 && b.out.dtype == DType::kU8)
    return LaunchPlanned(Medians<uint8_t>{{b}, /*split=*/{}}, samples, pieces, stream);
  return LaunchPlanned(Medians<float>{{b}, /*split=*/{}}, samples, pieces, stream);
}

}  // namespace jaxdali
