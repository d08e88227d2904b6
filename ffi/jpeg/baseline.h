// Decodes baseline and progressive JPEG files on the CPU, row by row, with the same bits as libjpeg-turbo ("islow",
// fancy upsampling) in less than half the time.
//
// It supports Huffman-coded files of 8 bits, gray or with three components, with all sampling factors that
// libjpeg-turbo accepts: sequential files of one scan, and progressive files whose scans transmit all bits of the most
// important coefficients. It leaves everything else, and every file that shows any damage, to libjpeg-turbo, so that
// the results for damaged files are exactly libjpeg-turbo's.
//
//   markers (header.h) -> bytes without stuffing (scan_bytes.h) -> coefficients (pair_table.h, block.h) -> samples
//   (band.h, idct.h, scaled_idct.h), one row of MCUs at a time -> pixels (upsampling.h, color.h)
//
// In a progressive file the scans give the coefficients of the whole image first (progressive.h).
//
// kernels.h has the functions that exist once for each kind of CPU. Clauses without a document are those of ITU-T T.81.
// A band is a row of MCUs. Read next: band.h, the heart of sequential decoding.
//
// A scaled-down image has smaller blocks. At 1/8 of the size a block has one sample, its mean. As in libjpeg-turbo,
// chroma that is subsampled in both directions gets larger blocks instead of being upsampled.
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

// A part of the stored raster, in pixels.
struct Region {
  int y, x, height, width;
};

// One per thread. It keeps its buffers, and the tables of the previous file.
class BaselineDecoder {
 public:
  explicit BaselineDecoder(const Kernels& kernels = BestKernels()) : kernels_(kernels) {}
  BaselineDecoder(const BaselineDecoder&) = delete;
  BaselineDecoder& operator=(const BaselineDecoder&) = delete;

  // Begins with a file, whose data must stay valid. False: the file is not supported.
  bool Start(const uint8_t* data, int64_t size, PixelFormat format);
  int width() const { return header_.width; }
  int height() const { return header_.height; }
  int components() const { return static_cast<int>(header_.components.size()); }

  // Scales the image down by 2, 4 or 8, with extents rounded up, as libjpeg-turbo does. False: not supported.
  bool Scale(int by);

  // Call this next, with the part of the image that is needed, which is not empty and inside. Rows above it are
  // skipped, and blocks beside it are not transformed.
  void Select(const Region& region);

  // Then get each of its rows, once: the pixels of the region's width, and no byte more. False: libjpeg-turbo must
  // decode the whole image.
  bool NextRow(uint8_t* pixels);

  // For kernels that do the rest (cuda_jpeg/compact.h), instead of Select and NextRow:
  bool progressive() const { return header_.progressive; }
  const Header& header() const { return header_; }
  // Decodes all coefficients of a progressive file that the format needs. False: libjpeg-turbo must decode it.
  bool DecodeCoefficients();
  const StoredPlane& stored(int component) const { return stored_[component]; }

  // For several decoders on one image (strips.h):
  const Kernels& kernels() const { return kernels_; }
  // Begins with the file of another decoder, for another region of the same raster.
  void Follow(const BaselineDecoder& other, const Region& region);
  const Region& region() const { return region_; }
  // The position of the next MCU. Finding its `byte` takes a search through the bytes that were read ahead. IsBefore is
  // quick: if it is true the position is before `place` in the file; if not, it may be anywhere.
  Checkpoint Position();
  bool IsBefore(const uint8_t* place) const { return scan_.bytes.IsBefore(scan_.bits.position(), place); }
  const uint8_t* end() const { return end_; }  // of the file
  // Continues from `place`.
  void MoveTo(const Checkpoint& place);
  // Skips this many MCUs. False: the data are damaged.
  bool Skip(int mcus);
  // Continues from the first row of MCUs that begins at or after `place`, which must not be before FirstBand().
  bool Enter(const Checkpoint& place);

  // Rows of MCUs: the number of MCUs in each, the number of rows, the first row that the region needs, the first row of
  // pixels that is available from a row on, and the row that is decoded next.
  int mcu_columns() const { return scan_.mcu_columns; }
  int bands() const { return bands_; }
  int first_band() const { return first_band_; }
  int FirstRowFrom(int band) const { return (band + 1) * band_height(); }
  int next_band() const { return next_band_; }
  int next_row() const { return next_row_; }
  int restart_interval() const { return header_.scans[0].restart_interval; }  // in MCUs; 0: no restarts

 private:
  // A component's samples of two bands, which alternate, because upsampling reads the rows above and below.
  struct Plane {
    Upsampling upsampling;
    int expand_x, expand_y;  // pixels per sample
    int h, v;                // sampling factors
    int size;                // width and height of a block in samples
    int width, height;       // in samples
    bool is_needed;
    int64_t pitch;                       // bytes from row to row
    uint8_t* samples;                    // rows of two bands
    alignas(32) int16_t quantizer[128];  // for a pair of blocks

    int band_rows() const { return size * v; }
    uint8_t* row(int y) const { return samples + y % (2 * band_rows()) * pitch; }
  };
  // Tables of a component, and the Huffman tables of the file that they are made from.
  struct Tables {
    bool is_made = false;
    HuffmanTable dc_source, ac_source;
    DcTable dc;
    AcTable ac;
    SkipTable skip;
    int num_skipped = 0;  // blocks skipped until `skip` is made
  };

  int band_height() const { return size_ * v_max_; }  // in pixels of the scaled image
  bool PlanComponents();
  void PlanSizes();
  void PlanTables();
  void PlanGroups();
  void AllocateRows();
  void PlanSkipping(int mcus, bool is_needed);
  bool DecodeNextBand();
  bool TransformNextBand();
  void SwapBands();
  const uint8_t* UpsampledRow(int component, int y);
  bool HasGoodEnd();  // checks the data after the region's last row

  const Kernels& kernels_;
  Header header_;
  const uint8_t *data_ = nullptr, *end_ = nullptr;  // of the file
  PixelFormat format_ = PixelFormat::kRgb;
  ColorTransform color_ = ColorTransform::kGray;
  int h_max_ = 1, v_max_ = 1, bands_ = 0;  // largest sampling factors; rows of MCUs
  bool needs_context_ = false;             // rows depend on the band below
  int size_ = 8;                           // size of a block in the largest component
  Region region_{};
  // The next row that NextRow gives, the next band and MCU to be decoded, and the first band that the region needs.
  int next_row_ = 0, next_band_ = 0, first_band_ = 0, next_mcu_ = 0;
  Plane plane_[3];
  Tables tables_[3];
  int table_of_[3];  // for each component, the index in tables_
  BandScan scan_;
  // For progressive files:
  KeptMemory stored_memory_;                  // of `stored_`
  StoredPlane stored_[3];                     // the coefficients of each component
  std::unique_ptr<CodeTable[]> scan_tables_;  // of the components of a scan
  bool has_coefficients_ = false;             // DecodeCoefficients has filled `stored_`
  std::vector<uint8_t> rows_;                 // rows of all planes, and three rows of upsampled samples
  uint8_t* upsampled_[3];                     // by component: the row that UpsampledRow makes
};

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_BASELINE_H_
