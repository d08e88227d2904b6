// Decodes baseline and progressive JPEG files on the CPU, row by row, to the bit as libjpeg-turbo does ("islow", fancy
// upsampling), in less than half its time.
//
// Covered are Huffman-coded files of 8 bits, gray or of three components, with any sampling factors that libjpeg-turbo
// accepts: sequential ones of one scan, and progressive ones whose scans leave no bit out of the coefficients that
// matter most. Everything else, and whatever looks damaged in the least, is for libjpeg-turbo:
// what it makes of damage then stays what it is.
//
//   markers (header.h) -> bytes without stuffing (scan_bytes.h) -> coefficients (pair_table.h, block.h) -> samples
//   (band.h, idct.h, scaled_idct.h), one row of MCUs at a time -> pixels (upsampling.h, color.h)
//
// The scans of a progressive file give the whole image's coefficients first (progressive.h).
//
// An image that is made smaller has smaller blocks, at an eighth of its size one sample of each, their mean. As in
// libjpeg-turbo subsampled chroma gets larger ones instead of being upsampled, where it is subsampled both ways.
#ifndef JAXDALI_FFI_JPEG_BASELINE_H_
#define JAXDALI_FFI_JPEG_BASELINE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "ffi/common/kept_memory.h"
#include "ffi/jpeg/band.h"
#include "ffi/jpeg/header.h"
#include "ffi/jpeg/kernels.h"
#include "ffi/jpeg/upsampling.h"

namespace jaxdali::jpeg {

enum class PixelFormat { kGray, kRgb, kBgr };

// Of the stored raster.
struct Region {
  int y, x, height, width;
};

// One per thread: it keeps its buffers, and the tables of the file before.
class BaselineDecoder {
 public:
  explicit BaselineDecoder(const Kernels& kernels = BestKernels()) : kernels_(kernels) {}
  BaselineDecoder(const BaselineDecoder&) = delete;
  BaselineDecoder& operator=(const BaselineDecoder&) = delete;

  // Begins with a file; its data have to stay. False: not covered.
  bool Start(const uint8_t* data, int64_t size, PixelFormat format);
  int width() const { return header_.width; }
  int height() const { return header_.height; }
  int components() const { return static_cast<int>(header_.components.size()); }

  // Makes the image smaller by 2, 4 or 8, rounded up, as libjpeg-turbo does. False: not covered.
  bool Scale(int by);

  // Then the part of the image that is wanted; not empty, and inside. Rows above it are skipped over, blocks beside it
  // are not transformed.
  void Select(const Region& region);

  // Then each of its rows, once: the region's width of pixels, and no byte more. False: libjpeg-turbo has to do it all.
  bool NextRow(uint8_t* pixels);

  // Of several decoders on one image (strips.h):
  const Kernels& kernels() const { return kernels_; }
  // Begins with the file of another one, for a part that is wanted of the same raster.
  void Follow(const BaselineDecoder& other, const Region& region);
  const Region& region() const { return region_; }
  // What is decoded next. Its `byte` is found by going over what was read ahead; IsBefore says quickly whether it comes
  // before a place in the file, or else it may be anywhere.
  Checkpoint Here();
  bool IsBefore(const uint8_t* place) const { return scan_.bytes.IsBefore(scan_.bits.position(), place); }
  const uint8_t* end() const { return end_; }  // of the file
  // Goes on from there.
  void MoveTo(const Checkpoint& place);
  // Skips over so many MCUs. False: damaged.
  bool Skip(int mcus);
  // Goes on from the first row of MCUs that begins there or behind it, which is not below FirstBand().
  bool Enter(const Checkpoint& place);

  // Rows of MCUs: how many MCUs each has, how many there are, the first one that the region needs, the first row of
  // pixels that is had from one and those below, the one that is decoded next.
  int mcu_columns() const { return scan_.mcu_columns; }
  int bands() const { return bands_; }
  int first_band() const { return first_band_; }
  int FirstRowFrom(int band) const { return (band + 1) * band_height(); }
  int next_band() const { return next_band_; }
  int next_row() const { return next_row_; }
  bool progressive() const { return header_.progressive; }
  int restart_interval() const { return header_.scans[0].restart_interval; }  // in MCUs; 0: none

 private:
  // A component's samples of two bands, which take turns: upsampling looks at the rows above and below.
  struct Plane {
    Upsampling upsampling;
    int expand_x, expand_y;  // pixels per sample
    int h, v;                // sampling factors
    int size;                // samples of a block, in each direction
    int width, height;       // in samples
    bool wanted;
    int64_t pitch;
    uint8_t* samples;
    alignas(32) int16_t quantizer[128];

    int band_rows() const { return size * v; }
    uint8_t* row(int y) const { return samples + y % (2 * band_rows()) * pitch; }
  };
  // Of a component, and for which Huffman tables it was made.
  struct Tables {
    bool made = false;
    HuffmanTable dc_source, ac_source;
    DcTable dc;
    AcTable ac;
    SkipTable skip;
    int skipped = 0;  // blocks, until that is made
  };

  int band_height() const { return size_ * v_max_; }  // in pixels
  bool PlanComponents();
  void PlanSizes();
  void PlanTables();
  void PlanGroups();
  void AllocateRows();
  void PlanSkipping(int mcus, bool wanted);
  bool DecodeNextBand();
  bool DecodeScans();
  bool TransformNextBand();
  void SwapBands();
  const uint8_t* UpsampledRow(int component, int y);
  bool EndsWell();

  const Kernels& kernels_;
  Header header_;
  const uint8_t *data_ = nullptr, *end_ = nullptr;
  PixelFormat format_ = PixelFormat::kRgb;
  ColorTransform color_ = ColorTransform::kGray;
  int h_max_ = 1, v_max_ = 1, bands_ = 0;
  bool needs_context_ = false;  // rows depend on the band below
  int size_ = 8;                // of the largest component's blocks
  Region region_{};
  int next_row_ = 0, next_band_ = 0, first_band_ = 0, next_mcu_ = 0;
  Plane plane_[3];
  Tables tables_[3];
  int table_of_[3];
  BandScan scan_;
  // Of a progressive file:
  KeptMemory stored_memory_;
  StoredPlane stored_[3];
  std::unique_ptr<CodeTable[]> scan_tables_;
  bool has_coefficients_ = false;
  std::vector<uint8_t> rows_;  // all planes' and three of pixels
  uint8_t* upsampled_[3];
};

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_BASELINE_H_
