// The host's part of decoding on a GPU: from the markers to rows, from rows to a plan of the working memory.
#include "ffi/cuda_jpeg/table.h"

#include <algorithm>

#include "ffi/cuda_jpeg/dc.h"
#include "ffi/cuda_jpeg/huffman.h"
#include "ffi/cuda_jpeg/shard.h"
#include "ffi/decode/decode.h"
#include "ffi/jpeg/header.h"

namespace jaxdali::jpeg {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 27;  // bits are counted in 31 bits

int CeilDivide(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

// Sets a component of the frame: its sizes, and the blocks that the region needs. False: not supported.
bool SetComponent(const FrameComponent& from, int h_max, int v_max, const ImageTable& image, Component* c) {
  if (h_max % from.h || v_max % from.v) return false;  // fractional factors, which libjpeg refuses too
  c->h = from.h;
  c->v = from.v;
  c->expand_x = h_max / from.h;
  c->expand_y = v_max / from.v;
  c->width = CeilDivide(int64_t{image.width} * from.h, h_max);
  c->height = CeilDivide(int64_t{image.height} * from.v, v_max);
  c->upsampling = UpsamplingOf(c->expand_x, c->expand_y, c->width);
  std::copy_n(from.quantizer, 64, c->quantizer);
  // The samples that are needed: those of whole groups of pixels, and the neighbours that upsampling reads.
  const int first_x = image.region_x / kGroupWidth * kGroupWidth,
            first_y = image.region_y / kGroupHeight * kGroupHeight;
  const int end_x = std::min(image.width, CeilDivide(image.region_x + image.region_w, kGroupWidth) * kGroupWidth);
  const int end_y = std::min(image.height, CeilDivide(image.region_y + image.region_h, kGroupHeight) * kGroupHeight);
  const int extra_columns = c->upsampling == Upsampling::kH2V1 || c->upsampling == Upsampling::kH2V2;
  const int extra_rows = c->upsampling == Upsampling::kH1V2 || c->upsampling == Upsampling::kH2V2;
  // In blocks of 8 x 8 samples: the first one, and the end behind the last one.
  c->x0 = std::max(0, first_x / c->expand_x - extra_columns) / 8;
  c->x1 = std::min(c->width - 1, (end_x - 1) / c->expand_x + extra_columns) / 8 + 1;
  c->y0 = std::max(0, first_y / c->expand_y - extra_rows) / 8;
  c->y1 = std::min(c->height - 1, (end_y - 1) / c->expand_y + extra_rows) / 8 + 1;
  return true;
}

// Sets a scan: the blocks of an MCU, the numbers of MCUs and segments. False: not supported, or it promises more than
// its bytes can hold.
bool SetScan(const Scan& from, int number, ImageTable* image) {
  ScanTable* s = &image->scan[number];
  const bool is_single = from.components.size() == 1;  // such a scan has one block per MCU and no padding
  s->components = static_cast<int32_t>(from.components.size());
  int rows = 0, needed_rows = 0;
  for (const ScanComponent& scan_component : from.components) {
    Component& c = image->component[scan_component.component];
    c.scan = number;
    c.first_mcu_block = s->mcu_blocks;
    const int blocks_x = is_single ? 1 : c.h, blocks_y = is_single ? 1 : c.v;
    if (s->mcu_blocks + blocks_x * blocks_y > kMaxMcuBlocks) return false;
    for (int y = 0; y < blocks_y; y++)
      for (int x = 0; x < blocks_x; x++)
        s->block[s->mcu_blocks++] = {static_cast<uint8_t>(scan_component.component), static_cast<uint8_t>(x),
                                     static_cast<uint8_t>(y), static_cast<uint8_t>(scan_component.dc),
                                     static_cast<uint8_t>(scan_component.ac)};
    s->mcu_columns = CeilDivide(is_single ? c.width : image->width, is_single ? 8 : 8 * c.h * c.expand_x);
    rows = CeilDivide(is_single ? c.height : image->height, is_single ? 8 : 8 * c.v * c.expand_y);
    needed_rows = std::max(needed_rows, CeilDivide(c.y1, blocks_y));
  }
  s->mcus = s->mcu_columns * rows;
  s->needed_mcus = s->mcu_columns * needed_rows;
  // The shortest period of the tables' order, for example 3 for Y Cb Cr with tables 0 1 1. Blocks with equal tables
  // can't be told apart by their bits.
  auto has_period = [&](int period) {
    for (int b = period; b < s->mcu_blocks; b++)
      if (s->block[b].dc != s->block[b - period].dc || s->block[b].ac != s->block[b - period].ac) return false;
    return s->mcu_blocks % period == 0;
  };
  for (s->period = 1; !has_period(s->period);) s->period++;
  // Without restarts, the scan is one segment.
  s->restart_interval = from.restart_interval ? std::min(from.restart_interval, s->mcus) : s->mcus;
  s->segments = CeilDivide(s->mcus, s->restart_interval);
  s->begin = static_cast<int32_t>(from.begin);
  s->end = static_cast<int32_t>(from.end);
  s->is_last = number == image->scans - 1;
  // A restart marker has two bytes and a block at least two bits. A file that promises more gets no working memory on
  // the GPU.
  const int64_t bytes = s->end - s->begin;
  return s->segments <= bytes / 2 + 1 && int64_t{s->mcus} * s->mcu_blocks <= 4 * bytes;
}

// Sets the AC table after each DC table, for groups of symbols that begin with a DC code.
void SetFollowers(ImageTable* row) {
  constexpr int8_t kUnknown = -2;
  for (int t = 0; t < row->tables; t++) row->follower[t] = row->table[t].is_ac ? static_cast<int8_t>(t) : kUnknown;
  for (const ScanTable& s : row->scan)
    for (int b = 0; b < s.mcu_blocks; b++) {
      int8_t& follower = row->follower[s.block[b].dc];
      // A DC table that precedes different AC tables has no follower.
      follower = follower == kUnknown || follower == s.block[b].ac ? static_cast<int8_t>(s.block[b].ac) : int8_t{-1};
    }
}

// Fills the row of an entropy-coded file. False: the kernels don't support it.
bool Fill(const uint8_t* data, int64_t size, const ImageInfo& info, ImageTable* row) {
  Header header;
  if (size > kMaxBytes || !ReadHeader(data, size, &header) || !SetFrame(header, info, row)) return false;
  if (header.scans.size() > kMaxScans || header.tables.size() > kMaxTables) return false;
  row->coding = Coding::kHuffman;
  row->scans = static_cast<int32_t>(header.scans.size());
  row->tables = static_cast<int32_t>(header.tables.size());
  std::copy(header.tables.begin(), header.tables.end(), row->table);
  for (int s = 0; s < row->scans; s++)
    if (!SetScan(header.scans[s], s, row)) return false;
  SetFollowers(row);
  return true;
}

// Short subsequences give more threads, long ones less work in total, since decoding from a wrong guess is wasted.
// Large GPUs hold about 200,000 threads of these kernels, which mostly wait for memory, so filling the GPU comes first.
// Below 512 bits the threads gain nothing: they wait for the longest stretch of bits that does not synchronise.
int SubsequenceBits(int64_t bytes) {
  constexpr int64_t kMegabyte = 1 << 20;
  return bytes >= 64 * kMegabyte ? 2048 : bytes >= 16 * kMegabyte ? 1024 : 512;
}

// Assigns places in the working memory, one after another.
struct Places {
  int64_t next;  // the first free place, in units of kPlaceUnit bytes

  // The place of an array of so many elements.
  template <class T>
  uint32_t Take(int64_t elements) {
    const int64_t place = next;
    next += (elements * static_cast<int64_t>(sizeof(T)) + kPlaceUnit - 1) / kPlaceUnit;
    return static_cast<uint32_t>(place);
  }
};

// Assigns a place to each array of a scan, whose elements table.h describes.
void PlaceScan(int components, ScanTable* s, Places* places) {
  s->words = places->Take<uint32_t>((s->end - s->begin + 3) / 4);
  s->segment_end = places->Take<uint32_t>(s->segments);
  s->chunk_kept = places->Take<uint32_t>(s->chunks);
  s->chunk_marks = places->Take<uint32_t>(s->chunks);
  s->extent = places->Take<ScanExtent>(1);
  const int64_t subsequences = int64_t{s->sequences} * kBlockSubsequences;
  s->last = places->Take<Decoding>(subsequences);
  s->earlier = places->Take<Decoding>(subsequences);
  s->edge = places->Take<uint16_t>(s->sequences);
  s->dc = places->Take<int16_t>(s->dc_values());
  s->dc_before = places->Take<uint64_t>(int64_t{s->dc_blocks} * DcWords(components));
}

// The number of a component's coefficients in the working memory.
int64_t Coefficients(const ImageTable& row, const Component& c) {
  return row.coding == Coding::kHuffman ? int64_t{c.blocks()} * 64 : 0;
}

// The size of an image's coefficients in units of kPlaceUnit bytes.
int64_t CoefficientUnits(const ImageTable& row) {
  int64_t total = 0;
  for (const Component& c : row.component) total += Coefficients(row, c);
  return total * static_cast<int64_t>(sizeof(int16_t)) / kPlaceUnit;
}

// Divides the images into groups whose coefficients take about the same memory, and gives each array of coefficients
// its place. `groups` 0: as PlanWorkspace says. `before`: where the coefficients begin. Returns the end of the largest
// group in units.
int64_t PlaceCoefficients(ImageTable* rows, int n, int groups, int32_t group_bytes, const Places& before) {
  int64_t total = 0;
  for (int i = 0; i < n; i++) total += CoefficientUnits(rows[i]);
  if (groups == 0) {
    groups = GroupsOf(n, total * kPlaceUnit, group_bytes);
    // The launch derives the number of groups from the size of the memory, so no more may be planned than that.
    while (groups > GroupsOf(n, (before.next + total / groups) * kPlaceUnit, group_bytes)) groups--;
  }
  int64_t units_before = 0, end = before.next;
  Places places = before;
  for (int i = 0; i < n; i++) {
    ImageTable& row = rows[i];
    // An image's group is given by the share of the coefficients before it.
    row.group = total ? static_cast<int32_t>(std::min(units_before * groups / total, int64_t{groups} - 1)) : 0;
    // Groups use the same memory one after another.
    if (i > 0 && row.group != rows[i - 1].group) places = before;
    for (Component& c : row.component) c.coefficients = places.Take<int16_t>(Coefficients(row, c));
    units_before += CoefficientUnits(row);
    end = std::max(end, places.next);
  }
  for (int i = 0; i < n; i++) {
    rows[i].coefficients = static_cast<uint32_t>(before.next);
    rows[i].coefficient_units = static_cast<uint32_t>(end - before.next);
  }
  return end;
}

}  // namespace

// Sets the fields that don't depend on the coding: the frame of a file, and the region of `info`. False: the kernels
// don't support the file, or it does not fit `info`.
bool SetFrame(const Header& header, const ImageInfo& info, ImageTable* row) {
  const size_t components = header.components.size();
  if (!IsDecodable(info) || components == 2 || header.width != info.width || header.height != info.height ||
      (components == 1) != (info.channels == 1))
    return false;
  row->width = info.width;
  row->height = info.height;
  row->region_y = info.region_y;
  row->region_x = info.region_x;
  row->region_h = info.region_h;
  row->region_w = info.region_w;
  row->components = static_cast<int32_t>(components);
  row->color = TransformOf(header);
  int h_max = 1, v_max = 1;
  for (const FrameComponent& c : header.components) h_max = std::max(h_max, c.h), v_max = std::max(v_max, c.v);
  for (size_t c = 0; c < components; c++)
    if (!SetComponent(header.components[c], h_max, v_max, *row, &row->component[c])) return false;
  return true;
}

// Makes the row of a JPEG file. False: the kernels don't support the file, and the row is empty.
bool MakeTable(const uint8_t* data, int64_t size, const ImageInfo& info, ImageTable* row) {
  *row = {};
  if (Fill(data, size, info, row)) return true;
  *row = {};
  return false;
}

// In the order of the rows, assigns places in the working memory, and the first CUDA block of each kernel's slots
// (chunk0, sequence0, ...). `subsequence_bits` and `groups` may be 0: then they are chosen. Returns the bytes of the
// working memory.
int64_t PlanWorkspace(ImageTable* rows, int n, int subsequence_bits, int groups, int32_t group_bytes) {
  int64_t bytes = 0;
  for (int i = 0; i < n; i++) {
    // Rows of images that the kernels skip take no memory and no blocks.
    if (rows[i].coding == Coding::kNone) rows[i] = {};
    for (const ScanTable& s : rows[i].scan) bytes += s.end - s.begin;
  }
  if (subsequence_bits == 0) subsequence_bits = SubsequenceBits(bytes);

  // The directory (shard.h) comes first.
  Places places{DirectoryUnits(n)};
  int32_t chunks = 0, sequences = 0, dc = 0, idct = 0, pixels = 0;
  for (int i = 0; i < n; i++) {
    ImageTable& row = rows[i];
    row.subsequence_bits = subsequence_bits;
    row.place = static_cast<uint32_t>(places.next);
    row.pixel0 = pixels;
    pixels += row.pixel_blocks();
    row.lookup = places.Take<Lookup>(row.tables);
    for (ScanTable& s : row.scan) {
      s.chunk0 = chunks;
      s.chunks = CeilDivide(s.end - (s.begin & ~(kLoadBytes - 1)), kChunkBytes);
      s.sequence0 = sequences;
      s.sequences = CeilDivide(CeilDivide(int64_t{s.end - s.begin} * 8, subsequence_bits), kBlockSubsequences);
      s.dc0 = dc;
      s.dc_blocks = CeilDivide(s.dc_values(), kDcValues);
      chunks += s.chunks;
      sequences += s.sequences;
      dc += s.dc_blocks;
      PlaceScan(row.components, &s, &places);
    }
    for (Component& c : row.component) {
      c.idct0 = idct;
      idct += c.idct_blocks();
      c.plane = places.Take<uint8_t>(int64_t{c.blocks()} * 64);
    }
    row.units = static_cast<uint32_t>(places.next) - row.place;
  }
  return PlaceCoefficients(rows, n, groups, group_bytes, places) * kPlaceUnit;
}

}  // namespace jaxdali::jpeg
