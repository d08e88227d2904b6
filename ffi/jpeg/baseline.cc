// The steps of a decoder: Start reads the markers, PlanComponents and PlanSizes derive block sizes and upsampling,
// Select prepares tables and buffers for a region, and NextRow decodes band by band, upsamples and converts colours.
// DecodeNextBand is the common step; sequential files then use DecodeBand of band.h, progressive ones
// DecodeCoefficients (once) and TransformBand.
#include "ffi/jpeg/baseline.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "ffi/common/triple.h"

namespace jaxdali::jpeg {
namespace {

constexpr int kEoi = 0xD9;                      // the marker that ends an image
constexpr size_t kKeptBytes = size_t{4} << 20;  // size of buffers that are kept from image to image
// libjpeg reads ahead. If the data end within this many bytes after a region, only libjpeg can tell whether it sees the
// end.
constexpr int64_t kLookAhead = 64;
// libjpeg refuses sums of DC values that exceed 32 bits. One band adds less than this.
constexpr uint32_t kMaxDc = 1u << 30;
// Skipping this many blocks saves the time of building a table for it, 2 us.
constexpr int kBlocksPerSkipTable = 256;

int CeilDivide(int a, int b) { return (a + b - 1) / b; }

bool Equal(const HuffmanTable& a, const HuffmanTable& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

// Begins with a file: reads its markers. False: the file is not supported.
bool BaselineDecoder::Start(const uint8_t* data, int64_t size, PixelFormat format) {
  if (!ReadHeader(data, size, &header_, /*may_be_progressive=*/true)) return false;
  const size_t n = header_.components.size();
  // Files with two or four components, and sequential files of several scans, are left to libjpeg-turbo.
  if ((n != 1 && n != 3) || (!progressive() && header_.scans.size() != 1)) return false;
  if (!progressive() && !std::all_of(header_.tables.begin(), header_.tables.end(), IsBaseline)) return false;
  data_ = data;
  end_ = data + size;
  format_ = format;
  color_ = TransformOf(header_);
  // Gray output is the luminance plane, which an RGB file does not have.
  if (color_ == ColorTransform::kRgb && format == PixelFormat::kGray) return false;
  return PlanComponents();
}

// Sets the sampling factors and quantizers of the components, and the size of the image in MCUs.
bool BaselineDecoder::PlanComponents() {
  h_max_ = v_max_ = 1;
  size_ = 8;
  scan_.mcu_blocks = 0;
  const bool is_single = components() == 1;  // then an MCU is one block, for all sampling factors (A.2.2)
  for (const FrameComponent& c : header_.components)
    if (!is_single) h_max_ = std::max(h_max_, c.h), v_max_ = std::max(v_max_, c.v);
  for (int i = 0; i < components(); i++) {
    const FrameComponent& c = header_.components[i];
    Plane& p = plane_[i];
    p.h = is_single ? 1 : c.h;
    p.v = is_single ? 1 : c.v;
    if (h_max_ % p.h || v_max_ % p.v) return false;  // libjpeg does not support fractions either
    p.is_needed = i == 0 || format_ != PixelFormat::kGray;
    // As the coefficients of a pair: each row of the matrix twice, for both blocks.
    for (int k = 0; k < 128; k++) p.quantizer[k] = static_cast<int16_t>(c.quantizer[k / 16 * 8 + k % 8]);
    scan_.mcu_blocks += p.h * p.v;
  }
  bands_ = CeilDivide(height(), 8 * v_max_);
  scan_.mcu_columns = CeilDivide(width(), 8 * h_max_);
  PlanSizes();
  return scan_.mcu_blocks <= kMaxBlocks;
}

// Sets the size of blocks and the kind of upsampling of each component, for the current scale.
void BaselineDecoder::PlanSizes() {
  needs_context_ = false;
  for (int i = 0; i < components(); i++) {
    Plane& p = plane_[i];
    p.expand_x = h_max_ / p.h;
    p.expand_y = v_max_ / p.v;
    p.size = size_;
    // A scaled-down image: larger blocks of a subsampled component replace its upsampling.
    for (; p.size < 8 && p.expand_x % 2 == 0 && p.expand_y % 2 == 0; p.size *= 2) p.expand_x /= 2, p.expand_y /= 2;
    p.width = CeilDivide(width() * p.h * p.size, h_max_ * 8);
    p.height = CeilDivide(height() * p.v * p.size, v_max_ * 8);
    p.upsampling = UpsamplingOf(p.expand_x, p.expand_y, p.width);
    if (size_ == 1 && p.upsampling != Upsampling::kFull) p.upsampling = Upsampling::kRepeat;  // as libjpeg does
    needs_context_ |= p.is_needed && (p.upsampling == Upsampling::kH1V2 || p.upsampling == Upsampling::kH2V2);
  }
}

// Scales the image down by 2, 4 or 8. False: not supported.
bool BaselineDecoder::Scale(int by) {
  // Of such a file libjpeg reads v rows of blocks at a time, see HasGoodEnd. Scaled down, it is left to it.
  if (components() == 1 && header_.components[0].v != 1) return false;
  size_ = 8 / by;
  PlanSizes();
  return !needs_context_;
}

// Prepares tables and buffers for a region. A sequential file begins with its first MCU, a progressive one with the
// first band that the region needs.
void BaselineDecoder::Select(const Region& region) {
  region_ = region;
  next_row_ = region.y;
  has_coefficients_ = false;
  // Upsampling reads at most v_max_ rows and h_max_ columns beside the region.
  first_band_ = std::max(0, region.y - v_max_) / band_height();
  next_band_ = 0;
  // A group is two MCUs (band.h).
  const int group_width = 2 * size_ * h_max_;
  scan_.first_group = std::max(0, region.x - h_max_) / group_width;
  scan_.end_group = (region.x + region.width - 1 + h_max_) / group_width + 1;
  if (progressive()) {
    std::fill_n(table_of_, 3, 0);
    AllocateRows();
    PlanGroups();
    // The buffer of a band is given by its parity; PlanGroups sets those of band 0.
    if (first_band_ % 2 != 0) SwapBands();
    next_band_ = first_band_;
    next_mcu_ = 0;
    return;
  }
  // A sequential file stores no coefficients, so this releases the memory for those of a progressive one.
  stored_memory_.OfSize(0);
  PlanTables();
  AllocateRows();
  PlanGroups();
  scan_.restart_interval = restart_interval() ? restart_interval() : INT_MAX;
  std::memset(scan_.coefficients, 0, sizeof scan_.coefficients);
  MoveTo({/*mcu=*/0, data_ + header_.scans[0].begin, /*bit=*/0, /*dc=*/{}});
}

void BaselineDecoder::Follow(const BaselineDecoder& other, const Region& region) {
  Start(other.data_, other.end_ - other.data_, other.format_);
  if (other.size_ < 8) Scale(8 / other.size_);
  Select(region);
}

// The position of the next MCU of a sequential file.
Checkpoint BaselineDecoder::Position() {
  const Bits& bits = scan_.bits;
  const int unread_bits = bits.valid & 7;  // of a byte that is partly read
  return {next_mcu_,
          scan_.bytes.Place(bits.position() - (unread_bits ? 1 : 0)),
          unread_bits ? 8 - unread_bits : 0,
          {scan_.dc[0], scan_.dc[1], scan_.dc[2]}};
}

// Continues from a place in the data of a sequential file.
void BaselineDecoder::MoveTo(const Checkpoint& place) {
  next_mcu_ = place.mcu;
  scan_.bits = Bits::At(scan_.bytes.Start(place.byte, end_));
  scan_.bits.Drop(static_cast<uint32_t>(place.bit));
  std::copy_n(place.dc, 3, scan_.dc);
  // The number of restart markers before this MCU. One directly before it is not yet read.
  scan_.restarts = std::max(place.mcu - 1, 0) / scan_.restart_interval;
  scan_.until_restart = (scan_.restarts + 1) * scan_.restart_interval - place.mcu;
}

// Skips MCUs of a sequential file. False: the data are damaged.
bool BaselineDecoder::Skip(int mcus) {
  const int columns = scan_.mcu_columns;
  PlanSkipping(mcus, /*is_needed=*/false);
  // For decode_band, these MCUs are a band of their own.
  scan_.mcu_columns = mcus;
  const bool is_good = kernels_.decode_band(&scan_, /*is_needed=*/false);
  scan_.mcu_columns = columns;
  next_mcu_ += mcus;
  // False if bits beyond the end of the data were used.
  return is_good && scan_.bits.position() <= scan_.bytes.filled();
}

// Continues from the first band that begins at or after `place`. False: the data are damaged.
bool BaselineDecoder::Enter(const Checkpoint& place) {
  MoveTo(place);
  const int band = CeilDivide(place.mcu, mcu_columns());
  // The buffer of a band is given by its parity.
  if ((band - next_band_) % 2 != 0) SwapBands();
  next_band_ = band;
  return Skip(band * mcu_columns() - place.mcu);
}

// Makes the tables of each component. Most files share a few tables, so those of the previous file are kept, and
// components with equal tables share them.
void BaselineDecoder::PlanTables() {
  for (int i = 0; i < components(); i++) {
    const ScanComponent& c = header_.scans[0].components[i];
    const HuffmanTable &dc = header_.tables[c.dc], &ac = header_.tables[c.ac];
    auto is_made = [&](const Tables& t) { return t.is_made && Equal(t.dc_source, dc) && Equal(t.ac_source, ac); };
    int k = 0;
    while (k < i && !is_made(tables_[table_of_[k]])) k++;
    table_of_[i] = k < i ? table_of_[k] : i;
    Tables& t = tables_[table_of_[i]];
    if (is_made(t)) continue;
    t.dc_source = dc;
    t.ac_source = ac;
    // A DC code is followed by an AC code, so its table holds both.
    t.dc.Make(dc, ac);
    t.ac.Make(ac, ac);
    t.skip.Clear();
    t.num_skipped = 0;
    t.is_made = true;
  }
}

// Called before `mcus` MCUs are decoded. It counts the blocks that are skipped, also over several files as long as the
// tables are equal. Once the tables for skipping would have paid off, it builds them.
void BaselineDecoder::PlanSkipping(int mcus, bool is_needed) {
  const int num_needed = std::min(2 * scan_.end_group, mcu_columns()) - 2 * scan_.first_group;
  for (int i = 0; i < components(); i++) {
    const Plane& p = plane_[i];
    Tables& t = tables_[table_of_[i]];
    if (t.skip.is_made()) continue;
    t.num_skipped += (mcus - (is_needed && p.is_needed ? num_needed : 0)) * p.h * p.v;
    if (t.num_skipped >= kBlocksPerSkipTable) t.skip.Make(t.ac_source);
  }
}

// Divides one buffer into rows: three of upsampled samples, and two bands of each needed component.
void BaselineDecoder::AllocateRows() {
  const int groups = CeilDivide(scan_.mcu_columns, 2);
  auto aligned = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  const int64_t row_bytes = aligned(int64_t{16} * groups * h_max_) + 2 * kRowMargin;
  int64_t num_bytes = 64 + kRowMargin + 3 * row_bytes;
  for (int i = 0; i < components(); i++) {
    Plane& p = plane_[i];
    p.pitch = aligned(int64_t{16} * groups * p.h) + 2 * kRowMargin;
    if (p.is_needed) num_bytes += 2 * p.band_rows() * p.pitch;
  }
  // A large image's buffer is not kept for small ones.
  if (rows_.size() > kKeptBytes) rows_ = {};
  if (static_cast<int64_t>(rows_.size()) < num_bytes) rows_.resize(static_cast<size_t>(num_bytes));
  // Rows begin at multiples of 64 bytes: the margin and all pitches are such multiples.
  auto* buffer = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(rows_.data()) + 63) / 64 * 64) + kRowMargin;
  for (uint8_t*& row : upsampled_) row = buffer, buffer += row_bytes;
  for (int i = 0; i < components(); i++) {
    plane_[i].samples = buffer;
    if (plane_[i].is_needed) buffer += 2 * plane_[i].band_rows() * plane_[i].pitch;
  }
}

// Sets the blocks of a group in the order of the scan, and the pairs that they form, for the first band's buffer.
void BaselineDecoder::PlanGroups() {
  int block = 0, first_pair = 0;
  for (int i = 0; i < components(); i++) {
    const Plane& p = plane_[i];
    const Tables& t = tables_[table_of_[i]];
    for (int y = 0; y < p.v; y++) {
      for (int x = 0; x < p.h; x++, block++) {
        for (int mcu = 0; mcu < 2; mcu++) {
          // Two MCUs side by side: in each row of blocks, neighbours form the pairs.
          const int column = mcu * p.h + x, pair = first_pair + y * p.h + column / 2;
          scan_.block[mcu * scan_.mcu_blocks + block] = {
              &t.dc, &t.ac, &t.skip, &scan_.dc[i], /*place=*/pair * kPairSize + column % 2 * 8, pair, p.is_needed};
        }
        scan_.pair[first_pair + y * p.h + x] = {p.quantizer, p.samples + p.size * (y * p.pitch + 2 * x), p.pitch,
                                                /*width=*/2 * p.size * p.h, p.is_needed ? p.size : 0};
      }
    }
    first_pair += p.h * p.v;
  }
}

// Makes the pairs of a group write to the other one of two buffers. Samples of consecutive bands alternate between
// them, and `next_band_` is still the band whose buffer is left.
void BaselineDecoder::SwapBands() {
  for (int i = 0, pair = 0; i < components(); i++) {
    const Plane& p = plane_[i];
    const int64_t to_other = p.band_rows() * p.pitch * (next_band_ % 2 ? -1 : 1);
    for (int k = 0; k < p.h * p.v; k++) scan_.pair[pair++].samples += p.is_needed ? to_other : 0;
  }
}

// Runs all scans of a progressive file, each over the whole image, and fills `stored_`, whose blocks are those of whole
// groups and MCUs. False: the data are damaged, so libjpeg-turbo must decode the image.
bool BaselineDecoder::DecodeCoefficients() {
  const int groups = CeilDivide(mcu_columns(), 2);
  int64_t pairs = 0;
  for (int i = 0; i < components(); i++) {
    const Plane& p = plane_[i];
    StoredPlane& s = stored_[i];
    s.pair_columns = groups * p.h;
    s.columns = CeilDivide(width() * p.h, 8 * h_max_);
    s.rows = CeilDivide(height() * p.v, 8 * v_max_);
    pairs += int64_t{s.pair_columns} * bands_ * p.v;
  }
  constexpr int64_t kPairBytes = kStoredPair * sizeof(int16_t), kPresentBytes = 2 * sizeof(uint64_t);
  // One allocation: the coefficients of all components, then their masks.
  auto* memory = static_cast<uint8_t*>(stored_memory_.OfSize(pairs * (kPairBytes + kPresentBytes)));
  std::memset(memory, 0, static_cast<size_t>(pairs * (kPairBytes + kPresentBytes)));
  auto* coefficients = reinterpret_cast<int16_t*>(memory);
  auto* present = reinterpret_cast<uint64_t*>(memory + pairs * kPairBytes);
  for (int i = 0; i < components(); i++) {
    const int64_t n = int64_t{stored_[i].pair_columns} * bands_ * plane_[i].v;
    stored_[i].pairs = coefficients;
    stored_[i].present = present;
    coefficients += n * kStoredPair;
    present += 2 * n;
  }
  if (!scan_tables_) scan_tables_ = std::make_unique<CodeTable[]>(3);
  for (const Scan& scan : header_.scans) {
    // Coefficients that the result does not need are not decoded: those of a component that it does not need, and AC
    // where blocks are scaled down to one sample. Damage there does not matter, because libjpeg only warns of it.
    const Plane& first = plane_[scan.components[0].component];
    if (scan.first > 0 && (!first.is_needed || first.size == 1)) continue;
    StoredScan s{};
    s.bytes = &scan_.bytes;
    s.bits = Bits::At(scan_.bytes.Start(data_ + scan.begin, end_));
    s.components = static_cast<int>(scan.components.size());
    s.restart_interval = scan.restart_interval;
    s.first = scan.first, s.last = scan.last, s.high = scan.high, s.low = scan.low;
    const bool is_single = s.components == 1;
    for (int i = 0; i < s.components; i++) {
      const ScanComponent& c = scan.components[i];
      const Plane& p = plane_[c.component];
      const int table = scan.first > 0 ? c.ac : c.dc;
      if (table >= 0)
        scan_tables_[i].Make(header_.tables[table], scan.first == 0  ? CodeTable::kDc
                                                    : scan.high == 0 ? CodeTable::kFirst
                                                                     : CodeTable::kRefine);
      s.component[i] = {&stored_[c.component], &scan_tables_[i], is_single ? 1 : p.h, is_single ? 1 : p.v};
    }
    // A scan of one component goes over its blocks without those that pad MCUs; others go over MCUs.
    s.mcu_columns = is_single ? s.component[0].plane->columns : mcu_columns();
    s.mcu_rows = is_single ? s.component[0].plane->rows : bands_;
    // The data must end exactly where the header of the next scan begins.
    if (!kernels_.decode_scan(&s) || end_ - scan_.bytes.bytes_left() != data_ + scan.end) return false;
  }
  return true;
}

// Transforms the next band of a progressive file from the stored coefficients, which the first call decodes. False:
// libjpeg-turbo must decode the image.
bool BaselineDecoder::TransformNextBand() {
  if (!has_coefficients_ && !DecodeCoefficients()) return false;
  has_coefficients_ = true;
  StoredGroupPair stored[kMaxBlocks];
  int pair = 0;
  for (int i = 0; i < components(); i++) {
    const StoredPlane& s = stored_[i];
    const Plane& p = plane_[i];
    for (int y = 0; y < p.v; y++) {
      const int64_t row = int64_t{next_band_} * p.v + y;
      for (int x = 0; x < p.h; x++)
        stored[pair++] = {s.pairs + (row * s.pair_columns + x) * kStoredPair,
                          s.present + 2 * (row * s.pair_columns + x), p.h};
    }
  }
  return kernels_.transform_band(scan_, stored);
}

// Makes the samples of the next band, for both kinds of files, or skips it above the region. False: libjpeg-turbo must
// decode the image.
bool BaselineDecoder::DecodeNextBand() {
  const bool is_needed = next_band_ >= first_band_;
  if (progressive()) {
    if (!TransformNextBand()) return false;
  } else {
    PlanSkipping(mcu_columns(), is_needed);
    if (!kernels_.decode_band(&scan_, is_needed)) return false;
  }
  for (int i = 0; i < components(); i++) {
    const Plane& p = plane_[i];
    // The unsigned sum wraps, so one comparison tests both limits, -kMaxDc and kMaxDc.
    if (!progressive() && scan_.dc[i] + kMaxDc > 2 * kMaxDc) return false;
    // Upsampling reads a neighbour beyond each end, which repeats the last sample.
    const bool has_neighbours = p.upsampling == Upsampling::kH2V1 || p.upsampling == Upsampling::kH2V2;
    if (!is_needed || !p.is_needed || !has_neighbours) continue;
    for (int y = 0; y < p.band_rows(); y++) {
      uint8_t* row = p.row(next_band_ * p.band_rows() + y);
      row[-1] = row[0];
      row[p.width] = row[p.width - 1];
    }
  }
  SwapBands();
  next_band_++;
  next_mcu_ += mcu_columns();
  // False if bits beyond the end of the data were used.
  return progressive() || scan_.bits.position() <= scan_.bytes.filled();
}

// The values of a component at row y of the image. The result is indexed by the image's columns; only the region's are
// there.
const uint8_t* BaselineDecoder::UpsampledRow(int component, int y) {
  const Plane& p = plane_[component];
  uint8_t* output = upsampled_[component];
  const int row = y / p.expand_y, begin = region_.x / p.expand_x,
            end = (region_.x + region_.width - 1) / p.expand_x + 1;
  const uint8_t* near_row = p.row(row);
  const uint8_t* far_row = p.row(std::clamp(row + (y % 2 ? 1 : -1), 0, p.height - 1));
  // The nearer row weighs 3/4. An odd row lies below the middle of its sample, an even one above.
  switch (p.upsampling) {
    case Upsampling::kFull:
      return near_row;
    case Upsampling::kH2V1:
      kernels_.upsample_h2v1(near_row, begin, end, output);
      return output;
    case Upsampling::kH1V2:
      kernels_.upsample_h1v2(near_row, far_row, y % 2, begin, end, output);
      return output;
    case Upsampling::kH2V2:
      kernels_.upsample_h2v2(near_row, far_row, begin, end, output);
      return output;
    case Upsampling::kRepeat:
      for (int x = begin; x < end; x++)
        std::memset(output + x * p.expand_x, near_row[x], static_cast<size_t>(p.expand_x));
      return output;
  }
  return nullptr;  // not reached: there are no other kinds
}

// Writes the next row of the region. False: libjpeg-turbo must decode the whole image.
bool BaselineDecoder::NextRow(uint8_t* pixels) {
  const int y = next_row_++;
  // As in libjpeg, if rows depend on the band below, the last row of each component waits for that band: the band's
  // last v_max_ rows of pixels.
  auto is_decoded = [&] {
    return next_band_ == bands_ || y < next_band_ * band_height() - (needs_context_ ? v_max_ : 0);
  };
  while (!is_decoded())
    if (!DecodeNextBand()) return false;
  const int n = region_.width;
  auto row = [&](int component) { return UpsampledRow(component, y) + region_.x; };
  const uint8_t* first = row(0);
  if (format_ == PixelFormat::kGray) {
    std::memcpy(pixels, first, static_cast<size_t>(n));
  } else if (color_ == ColorTransform::kGray) {
    Triple(first, n, pixels);
  } else {
    const uint8_t *second = row(1), *third = row(2);
    const bool bgr = format_ == PixelFormat::kBgr;
    if (color_ == ColorTransform::kYcc) {
      kernels_.convert_ycc(first, second, third, n, bgr, pixels);
    } else {
      // RGB without a transform: planes are only interleaved.
      if (bgr) std::swap(first, third);
      for (int x = 0; x < n; x++) pixels[3 * x] = first[x], pixels[3 * x + 1] = second[x], pixels[3 * x + 2] = third[x];
    }
  }
  return next_row_ < region_.y + region_.height || HasGoodEnd();
}

// Whether the data after the region's last row are good, as far as libjpeg would read them.
bool BaselineDecoder::HasGoodEnd() {
  if (progressive()) return true;  // all data were checked
  const ScanBytes& bytes = scan_.bytes;
  // libjpeg always reads the rows of an MCU of all components together, even if a single component makes the sampling
  // factors meaningless. It notices damage in all of these rows.
  const int bands_at_once = components() == 1 ? header_.components[0].v : 1;
  while (next_band_ < bands_ && next_band_ % bands_at_once != 0)
    if (!DecodeNextBand()) return false;
  // After the last row, nothing but the end-of-image marker may follow.
  if (next_band_ == bands_) return scan_.EndsAt(kEoi);
  if (bytes.filled() - scan_.bits.position() >= kLookAhead) return true;
  // Data follow after what was copied, or after a restart marker.
  const bool has_more_data = !bytes.complete() || (bytes.marker() & 0xF8) == 0xD0;
  return has_more_data && bytes.bytes_left() >= kLookAhead;
}

}  // namespace jaxdali::jpeg
