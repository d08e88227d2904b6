// JPEG compression and decompression on CUDA. The first launch makes planes: a block of threads compresses and
// decompresses some units, with eight threads for each block of 8 x 8 samples. The second one makes pixels, with a
// thread for eight of two rows.
#include "ffi/common/launch.h"
#include "ffi/cuda_jpeg/tile.h"
#include "ffi/jpeg_distortion/jpeg_distortion.h"

namespace jaxdali {
namespace {

// The planes of a sample in the working memory: luminance of all frames, then Cb, then Cr.
struct Planes {
  uint8_t* first;
  int64_t units;
  int32_t down, across;  // units

  JAXDALI_HD int32_t Pitch(bool is_chroma) const { return across * (is_chroma ? 8 : 16); }
  // Plane 0 (luminance), 1 (Cb) or 2 (Cr) of a frame. A unit has 256 samples of luminance and 64 of each chroma, so Cb
  // begins behind 256 samples of each unit, and Cr behind 320.
  JAXDALI_HD uint8_t* Of(int plane, int64_t frame) const {
    const int64_t chroma = int64_t{down} * across * 64;
    if (plane == 0) return first + frame * 4 * chroma;
    return first + units * (64 * (plane + 3)) + frame * chroma;
  }
};

// The first launch: compresses and decompresses minimum coded units (MCUs), and writes the planes.
struct DistortUnits : JpegDistortionBatch {
  static constexpr int kUnits = 16;           // of a piece
  static constexpr int kBlocks = 6 * kUnits;  // of a piece: of a unit, four of luminance, one of Cb, one of Cr
  static constexpr int kStride = 9 * 8;       // values from block to block in shared memory: a row more than it has,
                                              // against bank conflicts

  struct Plan {
    JpegDistortionArgs args;
    Planes planes;
    Divisor down, across;  // units of a frame
  };
  struct Unit {
    int64_t frame;
    int32_t row, column;  // of units
    uint8_t* to[3];       // its samples in each plane
  };
  struct Shared {
    Plan plan;
    Unit unit[kUnits];
    int32_t quantizer[2][64];
    uint32_t reciprocal[2][64];
    alignas(16) uint8_t samples[kUnits * kMcuBytes];
    alignas(16) int16_t values[kBlocks * kStride];
  };
  WorkSplit split;

  // Fills in the plan of sample i: what the threads that work on it need.
  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    if (Status e = Sample(i, &s->args, &s->planes.first); e != kOk) return e;
    s->planes.units = s->args.Units();
    s->planes.down = static_cast<int32_t>(s->args.down);
    s->planes.across = static_cast<int32_t>(s->args.across);
    s->down = Divisor(s->args.down);
    s->across = Divisor(s->args.across);
    return kOk;
  }
  JAXDALI_HD static int64_t CountPieces(const Plan& s) { return (s.planes.units + kUnits - 1) / kUnits; }

  // The work of one CUDA block: its share of the pieces of all samples. The phases: quantizers; samples, by 32 threads
  // for each unit; then, by 48 for each unit (eight for each block of 8 x 8), the DCT of rows, that of columns with its
  // inverse, the inverse of rows.
  template <class Block>
  JAXDALI_HD void operator()(const Block& block, Shared& s) const {
    split.ForEach(block, s, [&](int64_t first, int64_t end) {
      for (int64_t piece = first; piece < end; piece++) {
        const int64_t unit = piece * kUnits, left = s.plan.planes.units - unit;
        const int units = left < kUnits ? static_cast<int>(left) : kUnits;
        block.Phase([&](int thread) {
          if (thread < units) FindUnit(s.plan, unit + thread, &s.unit[thread]);
          for (int i = thread; i < 128; i += kThreads) {
            const int32_t q = s.plan.args.tables[i];
            s.quantizer[i / 64][i % 64] = q;
            s.reciprocal[i / 64][i % 64] = jpeg::Reciprocal(q);
          }
        });
        block.Phase([&](int thread) {
          for (int i = thread; i < units * 32; i += kThreads)
            LoadPixels(s.plan.args, s.unit[i / 32], /*y=*/i % 32 / 4, /*x=*/i % 4, s.samples + i / 32 * kMcuBytes);
        });
        block.Phase([&](int thread) {
          for (int i = thread; i < units * 48; i += kThreads) ForwardRow(s, /*block=*/i / 8, /*y=*/i % 8);
        });
        block.Phase([&](int thread) {
          for (int i = thread; i < units * 48; i += kThreads) Column(&s, /*block=*/i / 8, /*x=*/i % 8);
        });
        block.Phase([&](int thread) {
          for (int i = thread; i < units * 48; i += kThreads) StoreRow(s, /*block=*/i / 8, /*y=*/i % 8);
        });
      }
    });
  }

 private:
  // Finds a unit by its number: across a frame, then down, then frame by frame.
  JAXDALI_HD static void FindUnit(const Plan& s, int64_t number, Unit* unit) {
    const auto column = s.across.Divide(static_cast<uint64_t>(number)), row = s.down.Divide(column.quotient);
    unit->frame = static_cast<int64_t>(row.quotient);
    unit->row = static_cast<int32_t>(row.rest);
    unit->column = static_cast<int32_t>(column.rest);
    for (int plane = 0; plane < 3; plane++) {
      const int32_t side = plane == 0 ? 16 : 8;
      unit->to[plane] =
          s.planes.Of(plane, unit->frame) + int64_t{unit->row} * side * s.planes.Pitch(plane > 0) + unit->column * side;
    }
  }

  // Bytes of the four pixels of a row from pixel x on. Beyond the image its last pixel repeats.
  JAXDALI_HD static void LoadFourPixels(const uint8_t* row, int32_t x, int32_t width, uint32_t (&words)[3]) {
    const uint8_t* from = row + int64_t{x} * 3;
    const int offset_in_word = static_cast<int>(reinterpret_cast<uintptr_t>(from) & 3);
    if (offset_in_word == 0 && x + 4 <= width) {
      JAXDALI_UNROLL
      for (int i = 0; i < 3; i++) words[i] = ReadWord(from + 4 * i);
    } else if (x + 5 <= width) {  // the words end inside the fifth pixel
      uint32_t low = ReadWord(from - offset_in_word);
      JAXDALI_UNROLL
      for (int i = 0; i < 3; i++) {
        const uint32_t high = ReadWord(from - offset_in_word + 4 * (i + 1));
        words[i] = Funnel(low, high, 8 * offset_in_word);
        low = high;
      }
    } else {
      words[0] = words[1] = words[2] = 0;
      JAXDALI_UNROLL
      for (int i = 0; i < 12; i++) {
        const int32_t pixel = x + i / 3 < width ? x + i / 3 : width - 1;
        words[i / 4] |= static_cast<uint32_t>(row[int64_t{pixel} * 3 + i % 3]) << (8 * (i % 4));
      }
    }
  }

  // Makes the samples of 4 x 2 pixels of a unit: rows 2 * y and 2 * y + 1, columns 4 * x to 4 * x + 3. Below the image
  // the last row of luminance repeats, and the last row of chroma.
  JAXDALI_HD static void LoadPixels(const JpegDistortionArgs& a, const Unit& unit, int y, int x, uint8_t* samples) {
    const int32_t width = static_cast<int32_t>(a.width), bottom = static_cast<int32_t>(a.height) - 1;
    const int32_t chroma = unit.row * 8 + y, upper = 2 * (chroma < bottom / 2 ? chroma : bottom / 2);
    const uint8_t* row = a.in + (unit.frame * a.height + upper) * a.width * 3;
    uint32_t rgb[2][3];
    LoadFourPixels(row, unit.column * 16 + 4 * x, width, rgb[0]);
    LoadFourPixels(upper < bottom ? row + a.width * 3 : row, unit.column * 16 + 4 * x, width, rgb[1]);
    int32_t luminance[2][4], sum[2][2] = {};
    JAXDALI_UNROLL
    for (int r = 0; r < 2; r++) {
      JAXDALI_UNROLL
      for (int i = 0; i < 4; i++) {
        uint8_t pixel[3];
        JAXDALI_UNROLL
        for (int c = 0; c < 3; c++) pixel[c] = static_cast<uint8_t>(rgb[r][(3 * i + c) / 4] >> (8 * ((3 * i + c) % 4)));
        luminance[r][i] = jpeg::Component(/*component=*/0, pixel);
        sum[0][i / 2] += jpeg::Component(/*component=*/1, pixel);
        sum[1][i / 2] += jpeg::Component(/*component=*/2, pixel);
      }
    }
    JAXDALI_UNROLL
    for (int r = 0; r < 2; r++) {
      const bool lower = r == 1 || chroma > bottom / 2;
      uint32_t bytes[4];
      JAXDALI_UNROLL
      for (int i = 0; i < 4; i++) bytes[i] = static_cast<uint32_t>(lower ? luminance[1][i] : luminance[0][i]);
      WriteWord(samples + (2 * y + r) * 16 + 4 * x, PackBytes(bytes[0], bytes[1], bytes[2], bytes[3]));
    }
    JAXDALI_UNROLL
    for (int c = 0; c < 2; c++) {
      JAXDALI_UNROLL
      for (int i = 0; i < 2; i++)
        // The mean of 2 x 2 pixels. libjpeg's h2v2_downsample adds 1 and 2 in turn.
        samples[kMcuLuminance + kMcuChroma * c + 8 * y + 2 * x + i] = static_cast<uint8_t>((sum[c][i] + 1 + i) >> 2);
    }
  }

  // The next three functions are the phases of a block of 8 x 8 samples, for one of its rows or columns each. `block`
  // counts the blocks of a piece, six for each unit: 0 to 3 are luminance, 4 is Cb, 5 is Cr. First the DCT of a row,
  // from samples.
  JAXDALI_HD static void ForwardRow(Shared& s, int block, int y) {
    const int unit = block / 6, index = block % 6;
    const int offset =
        index < 4 ? (index / 2 * 8 + y) * 16 + index % 2 * 8 : kMcuLuminance + (index - 4) * kMcuChroma + y * 8;
    const jpeg::Words2 samples = jpeg::Load2(s.samples + unit * kMcuBytes + offset);
    int32_t v[8];
    JAXDALI_UNROLL
    for (int x = 0; x < 8; x++) v[x] = static_cast<int32_t>(samples.word[x / 4] >> (8 * (x % 4)) & 255) - 128;
    jpeg::ForwardPass<-2>(v);  // keeps two more bits, which that of columns drops
    jpeg::Words4 row;          // two coefficients of 16 bits in a word
    JAXDALI_UNROLL
    for (int k = 0; k < 4; k++)
      row.word[k] = (static_cast<uint32_t>(v[2 * k]) & 0xFFFF) | static_cast<uint32_t>(v[2 * k + 1]) << 16;
    jpeg::Store4(s.values + block * kStride + y * 8, row);
  }
  // The DCT of a column, its quantization, and the inverse DCT.
  JAXDALI_HD static void Column(Shared* s, int block, int x) {
    const int table = block % 6 < 4 ? 0 : 1;
    int16_t* const column = s->values + block * kStride + x;
    int32_t v[8], out[8];
    JAXDALI_UNROLL
    for (int y = 0; y < 8; y++) v[y] = column[y * 8];
    jpeg::ForwardPass<2>(v);
    JAXDALI_UNROLL
    for (int y = 0; y < 8; y++)
      v[y] = jpeg::Requantize(v[y], s->quantizer[table][y * 8 + x], s->reciprocal[table][y * 8 + x]);
    jpeg::IdctColumn(v, out);
    JAXDALI_UNROLL
    for (int y = 0; y < 8; y++) column[y * 8] = static_cast<int16_t>(out[y]);
  }
  // The inverse DCT of a row, to the planes.
  JAXDALI_HD static void StoreRow(const Shared& s, int block, int y) {
    const int index = block % 6, plane = index < 4 ? 0 : index - 3;
    const jpeg::Words4 row = jpeg::Load4(s.values + block * kStride + y * 8);
    int32_t v[8], out[8];
    JAXDALI_UNROLL
    for (int x = 0; x < 8; x++) v[x] = static_cast<int16_t>(row.word[x / 2] >> 16 * (x % 2));
    jpeg::IdctRow(v, out);
    jpeg::Words2 bytes;
    JAXDALI_UNROLL
    for (int k = 0; k < 2; k++)
      bytes.word[k] = PackBytes(static_cast<uint32_t>(out[4 * k]), static_cast<uint32_t>(out[4 * k + 1]),
                                static_cast<uint32_t>(out[4 * k + 2]), static_cast<uint32_t>(out[4 * k + 3]));
    const int32_t at_y = plane == 0 ? index / 2 * 8 + y : y, at_x = plane == 0 ? index % 2 * 8 : 0;
    jpeg::Store2(s.unit[block / 6].to[plane] + int64_t{at_y} * s.plan.planes.Pitch(plane > 0) + at_x, bytes);
  }
};

// The second launch: makes pixels from the planes. A unit is 8 x 2 pixels.
struct MakePixels : JpegDistortionBatch {
  struct Plan {
    int64_t units;
    JpegDistortionArgs args;
    Planes planes;
    Divisor down, across;  // groups of 8 x 2 pixels of a frame
  };

  // Fills in the plan of sample i: what the threads that work on it need.
  JAXDALI_HD Status Prepare(int i, Plan* s) const {
    if (Status e = Sample(i, &s->args, &s->planes.first); e != kOk) return e;
    s->planes.units = s->args.Units();
    s->planes.down = static_cast<int32_t>(s->args.down);
    s->planes.across = static_cast<int32_t>(s->args.across);
    const int64_t down = (s->args.height + 1) / 2, across = (s->args.width + 7) / 8;
    s->down = Divisor(down);
    s->across = Divisor(across);
    s->units = s->args.frames * down * across;
    return kOk;
  }
  // The work of a thread: units first, first + kThreads, ..., each of 8 x 2 pixels.
  JAXDALI_HD void Work(const Plan& s, int64_t first, int64_t end) const {
    const JpegDistortionArgs& a = s.args;
    const int32_t width = static_cast<int32_t>(a.width), height = static_cast<int32_t>(a.height);
    for (int64_t i = first; i < end; i += kThreads) {
      const auto column = s.across.Divide(static_cast<uint64_t>(i)), row = s.down.Divide(column.quotient);
      const int64_t frame = static_cast<int64_t>(row.quotient);
      const int32_t y = static_cast<int32_t>(row.rest) * 2, x = static_cast<int32_t>(column.rest) * 8;
      const uint8_t* luminance = s.planes.Of(/*plane=*/0, frame) + int64_t{y} * s.planes.Pitch(/*is_chroma=*/false) + x;
      uint32_t cb[2][4], cr[2][4];
      Chroma(s, /*component=*/1, frame, y, x, cb);
      Chroma(s, /*component=*/2, frame, y, x, cr);
      uint8_t* to = a.out + ((frame * height + y) * width + x) * 3;
      JAXDALI_UNROLL
      for (int r = 0; r < 2; r++) {
        if (y + r >= height) break;
        jpeg::Words2 pixels[3];
        jpeg::ConvertGroup(jpeg::ColorWeights::Make(/*bgr=*/false),
                           jpeg::Load2(luminance + r * s.planes.Pitch(/*is_chroma=*/false)), cr[r], cb[r], pixels);
        Store(pixels, width - x < 8 ? width - x : 8, to + int64_t{r} * width * 3);
      }
    }
  }

 private:
  // Cb or Cr of the 8 x 2 pixels at (y, x), upsampled.
  JAXDALI_HD static void Chroma(const Plan& s, int component, int64_t frame, int32_t y, int32_t x,
                                uint32_t (&out)[2][4]) {
    const int32_t rows = static_cast<int32_t>(s.args.height + 1) / 2,
                  columns = static_cast<int32_t>(s.args.width + 1) / 2;
    const jpeg::Plane plane{.data = s.planes.Of(component, frame),
                            .pitch = s.planes.Pitch(/*is_chroma=*/true),
                            .begin_y = 0,
                            .end_y = rows,
                            .begin_x = 0,
                            .end_x = columns,
                            .expand_x = 2,
                            .expand_y = 2,
                            .mode = jpeg::Upsampling::kH2V2};
    if (columns > 2) return jpeg::UpsampleGroup(plane, y, x, out);
    // libjpeg repeats the samples of images as narrow as this, whose pixels are the first four of a group.
    JAXDALI_UNROLL
    for (int i = 0; i < 4; i++) out[0][i] = out[1][i] = static_cast<uint32_t>(plane.At(y / 2, plane.ClampX(i / 2)));
  }
  // Stores n of eight pixels.
  JAXDALI_HD static void Store(const jpeg::Words2 (&pixels)[3], int n, uint8_t* to) {
    if (n == 8 && reinterpret_cast<uintptr_t>(to) % 8 == 0) {
      JAXDALI_UNROLL
      for (int i = 0; i < 3; i++) jpeg::Store2(to + 8 * i, pixels[i]);
    } else if (n == 8 && reinterpret_cast<uintptr_t>(to) % 4 == 0) {
      JAXDALI_UNROLL
      for (int i = 0; i < 6; i++) WriteWord(to + 4 * i, pixels[i / 2].word[i % 2]);
    } else {
      JAXDALI_UNROLL
      for (int i = 0; i < 24; i++)
        if (i < 3 * n) to[i] = static_cast<uint8_t>(pixels[i / 8].word[i / 4 % 2] >> (8 * (i % 4)));
    }
  }
};

}  // namespace

// Launches both kernels. Returns null or an error message.
const char* LaunchJpegDistortion(const JpegDistortionBatch& b, const Samples& samples, void* stream) {
  const int64_t pieces = b.out.capacity / (kMcuSide * kMcuSide * 3 * DistortUnits::kUnits) + samples.n;
  if (const char* error = LaunchPlanned(DistortUnits{{b}, /*split=*/{}}, samples, pieces, stream)) return error;
  return Launch(MakePixels{b}, samples, stream);
}

}  // namespace jaxdali
