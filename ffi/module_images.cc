// Images: headers, regions, decoding and encoding, tables for the GPU's JPEG decoder, and colours of video frames.
// Functions of ffi/cpu_codecs, ffi/cuda_jpeg, ffi/host and ffi/video with checks of their arguments.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "ffi/common/batch.h"
#include "ffi/cpu_codecs/encode_jpeg.h"
#include "ffi/cpu_codecs/image_header.h"
#include "ffi/cuda_jpeg/compact.h"
#include "ffi/cuda_jpeg/table.h"
#include "ffi/decode/decode.h"
#include "ffi/host/windows.h"
#include "ffi/module_parts.h"
#include "ffi/video/yuv.h"

namespace nb = nanobind;

namespace jaxdali {
namespace {

using Rows = nb::ndarray<int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Pairs = nb::ndarray<T, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;

// A packed batch of encoded images of all shards, from jaxdali._core.ragged.Packed.
struct EncodedBatch {
  const uint8_t* bytes;            // [shards, capacity]
  const int32_t* offsets;          // [n] in units of kAlignment, in the row of the sample's shard
  const int64_t* sizes;            // [n] in bytes
  int64_t n, per_shard, capacity;  // samples; samples of a shard; bytes of a shard's row

  // Throws if lengths differ or a sample lies outside its shard's row.
  EncodedBatch(const nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig>& data, const Vector<const int32_t>& starts,
               const Vector<const int64_t>& lengths)
      : bytes(data.data()), offsets(starts.data()), sizes(lengths.data()), n(static_cast<int64_t>(starts.shape(0))) {
    const auto shards = static_cast<int64_t>(data.shape(0));
    capacity = static_cast<int64_t>(data.shape(1));
    if (shards == 0 || n % shards != 0 || static_cast<int64_t>(lengths.shape(0)) != n)
      throw nb::value_error("encoded images: lengths of the operands differ");
    per_shard = n / shards;
    for (int64_t i = 0; i < n; i++) {
      const int64_t start = offsets[i] * kAlignment;
      if (start < 0 || sizes[i] < 0 || start + sizes[i] > capacity)
        throw nb::value_error("encoded images: a sample outside the buffer");
    }
  }

  const uint8_t* operator[](int64_t i) const { return bytes + i / per_shard * capacity + offsets[i] * kAlignment; }
};

// The rows of an operand, after a check of its shape.
ImageInfo* Info(const Rows& info, int64_t n) {
  if (static_cast<int64_t>(info.shape(0)) != n || info.shape(1) != kInfoColumns)
    throw nb::value_error("info must be i32[N, INFO_COLUMNS]");
  return reinterpret_cast<ImageInfo*>(info.data());
}

jpeg::ImageTable* Tables(const Rows& tables) {
  if (tables.shape(1) != jpeg::kTableWords) throw nb::value_error("tables must be i32[N, TABLE_WORDS]");
  return reinterpret_cast<jpeg::ImageTable*>(tables.data());
}

// Parses the headers of a batch into `info`; rows of absent images are 0. pool_id: -1: in this thread alone. Returns
// the most pixels of an image, or -1 if a header is damaged, or if a library has to read a header or decode an image.
int64_t ParseHeaders(nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig> data, Vector<const int32_t> offsets,
                     Vector<const int64_t> sizes, Rows info, std::optional<Vector<const bool> > present, int pool_id) {
  const EncodedBatch batch(data, offsets, sizes);
  ImageInfo* out = Info(info, batch.n);
  if (present && static_cast<int64_t>(present->shape(0)) != batch.n)
    throw nb::value_error("parse_headers: lengths of the operands differ");
  const auto parse = [&](int i) {
    out[i] = !present || present->data()[i] ? ParseHeader(batch[i], batch.sizes[i]) : ImageInfo{};
  };
  auto pool = pool_id < 0 ? nullptr : Pool(pool_id);
  nb::gil_scoped_release release;
  if (pool) {
    pool->Run(static_cast<int>(batch.n), parse);
  } else {
    for (int i = 0; i < batch.n; i++) parse(i);
  }
  int64_t most = 0;
  for (int64_t i = 0; i < batch.n; i++) {
    const ImageInfo& row = out[i];
    const bool is_unread = row.height == 0 && row.format != 0;  // a library has to read the header
    if (row.status != 0 || row.host_decode != 0 || is_unread) return -1;
    most = std::max(most, int64_t{row.height} * row.width);
  }
  return most;
}

// The next four functions are those of host/windows.h with checks of shapes.
void GetUprightExtents(Rows info, bool adjust_orientation, Pairs<int64_t> extents) {
  const auto n = static_cast<int64_t>(extents.shape(0));
  UprightExtents(Info(info, n), n, adjust_orientation, extents.data());
}

void GetRegionShapes(Rows info, bool adjust_orientation, int channels,
                     nb::ndarray<int64_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu> shapes) {
  const auto n = static_cast<int64_t>(shapes.shape(0));
  RegionShapes(Info(info, n), n, adjust_orientation, channels, shapes.data());
}

std::vector<int> WriteRegions(Rows info, bool adjust_orientation, Pairs<const double> start, Pairs<const double> size) {
  const auto n = static_cast<int64_t>(start.shape(0));
  if (size.shape(0) != start.shape(0)) throw nb::value_error("set_regions: lengths of the operands differ");
  return SetRegions(Info(info, n), n, adjust_orientation, start.data(), size.data());
}

// RandomWindows (host/windows.h) with checks of shapes. u: a row of random numbers for each sample, two for the
// position and two for each attempt.
void DrawWindows(nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu> u, Pairs<const int64_t> extents,
                 std::array<double, 2> area, std::array<double, 2> aspect_ratio, Pairs<double> start,
                 Pairs<double> size) {
  const size_t n = u.shape(0), attempts = (u.shape(1) - 2) / 2;
  if (u.shape(1) < 2 || u.shape(1) % 2 != 0 || extents.shape(0) != n || start.shape(0) != n || size.shape(0) != n)
    throw nb::value_error("random_windows: shapes of the operands do not agree");
  nb::gil_scoped_release release;
  RandomWindows(u.data(), static_cast<int64_t>(n), static_cast<int>(attempts), extents.data(), area, aspect_ratio,
                start.data(), size.data());
}

// jpeg::MakeTable (cuda_jpeg/table.h) for each image of a batch. An image that is not usable, no JPEG file, or not
// supported gets the coding kNone.
void MakeJpegTables(nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig> data, Vector<const int32_t> offsets,
                    Vector<const int64_t> sizes, Rows info, Vector<const bool> usable, Rows tables, int pool_id) {
  const EncodedBatch batch(data, offsets, sizes);
  const ImageInfo* rows = Info(info, batch.n);
  jpeg::ImageTable* out = Tables(tables);
  if (static_cast<int64_t>(usable.shape(0)) != batch.n || static_cast<int64_t>(tables.shape(0)) != batch.n)
    throw nb::value_error("make_jpeg_tables: lengths of the operands differ");
  auto pool = Pool(pool_id);
  nb::gil_scoped_release release;
  pool->Run(static_cast<int>(batch.n), [&](int i) {
    const bool jpeg = usable.data()[i] && rows[i].format == static_cast<int32_t>(Format::kJpeg);
    if (!jpeg || !jpeg::MakeTable(batch[i], batch.sizes[i], rows[i], &out[i])) out[i].coding = jpeg::Coding::kNone;
  });
}

// Decodes the coefficients of progressive files. Returns for each file its coefficients in compact form, or None if the
// CPU must decode it or they would have more than `most` bytes. Sets the row of each file in `tables`.
nb::list CompactJpegs(const std::vector<Vector<const uint8_t> >& data, Rows info, Vector<const int64_t> most,
                      Rows tables, int output_type, int pool_id) {
  const size_t n = data.size();
  const ImageInfo* rows = Info(info, static_cast<int64_t>(n));
  jpeg::ImageTable* out = Tables(tables);
  if (most.shape(0) != n || tables.shape(0) != n)
    throw nb::value_error("compact_jpegs: lengths of the operands differ");
  auto pool = Pool(pool_id);
  std::vector<jpeg::Compact> compact(n);
  {
    nb::gil_scoped_release release;
    pool->Run(static_cast<int>(n), [&](int i) {
      const int64_t limit = std::min<int64_t>(most.data()[i], INT32_MAX);  // sizes of samples have 31 bits
      jpeg::MakeCompact(data[i].data(), static_cast<int64_t>(data[i].size()), rows[i],
                        static_cast<ImageType>(output_type), limit, &compact[i], &out[i]);
    });
  }
  nb::list result;
  for (size_t i = 0; i < n; i++) {
    if (out[i].coding == jpeg::Coding::kNone) {
      result.append(nb::none());
      continue;
    }
    uint8_t* bytes = compact[i].bytes.release();
    nb::capsule owner(bytes, [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
    result.append(nb::ndarray<nb::numpy, uint8_t, nb::ndim<1> >(bytes, {static_cast<size_t>(compact[i].size)}, owner));
  }
  return result;
}

// Assigns each image its part of its shard's working memory, and returns the most bytes that a shard needs.
// `subsequence_bits`: bits that a thread decodes at a time; `groups`: of images, whose coefficients share memory. Each
// may be 0: jpeg::PlanWorkspace chooses it.
int64_t PlanJpegWorkspace(Rows tables, int64_t shards, int subsequence_bits, int groups, int32_t group_bytes) {
  jpeg::ImageTable* rows = Tables(tables);
  const auto n = static_cast<int64_t>(tables.shape(0));
  if (shards <= 0 || n % shards != 0) throw nb::value_error("plan_jpeg_workspace: number of shards");
  if (group_bytes <= 0) throw nb::value_error("plan_jpeg_workspace: group_bytes");
  int64_t most = 0;
  for (int64_t s = 0; s < shards; s++)
    most = std::max(most, jpeg::PlanWorkspace(rows + s * (n / shards), static_cast<int>(n / shards), subsequence_bits,
                                              groups, group_bytes));
  return most;
}

// The DType of an array's element type. Each list below is ordered by the size of an element, 2^log_bytes bytes; floats
// begin with 2 bytes. Throws for other types.
DType TypeOf(const AnyArray& a) {
  const auto [code, bits] = std::pair(a.dtype().code, a.dtype().bits);
  if (code == static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat) && bits == 16) return DType::kBF16;
  const int log_bytes = bits == 8 ? 0 : bits == 16 ? 1 : bits == 32 ? 2 : 3;
  if (code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float) && log_bytes > 0)
    return std::array{DType::kF16, DType::kF32, DType::kF64}[log_bytes - 1];
  if (code == static_cast<uint8_t>(nb::dlpack::dtype_code::UInt))
    return std::array{DType::kU8, DType::kU16, DType::kU32, DType::kU64}[log_bytes];
  if (code == static_cast<uint8_t>(nb::dlpack::dtype_code::Int))
    return std::array{DType::kI8, DType::kI16, DType::kI32, DType::kI64}[log_bytes];
  throw nb::type_error("unknown element type");
}

// Decodes each image into its array [H, W, C], on a thread pool. Returns the status of each.
std::vector<int> DecodeImages(const std::vector<Vector<const uint8_t> >& data, Rows info,
                              const std::vector<AnyArray>& out, int output_type, bool adjust_orientation,
                              bool fast_idct, int pool_id) {
  const auto n = static_cast<int64_t>(data.size());
  const ImageInfo* rows = Info(info, n);
  if (out.size() != data.size()) throw nb::value_error("decode_images: lengths of the operands differ");
  auto pool = Pool(pool_id);
  const DecodeOptions options{static_cast<ImageType>(output_type), adjust_orientation, fast_idct, {pool.get()}};
  std::vector<DType> dtypes;
  for (const AnyArray& a : out) {
    if (a.ndim() != 3) throw nb::value_error("decode_images: results must be [H, W, C]");
    dtypes.push_back(TypeOf(a));
  }
  std::vector<int> status(data.size());
  nb::gil_scoped_release release;
  pool->Run(static_cast<int>(n), [&](int i) {
    const AnyArray& a = out[i];
    status[i] = DecodeImage(data[i].data(), static_cast<int64_t>(data[i].size()), rows[i], options, dtypes[i], a.data(),
                            static_cast<int64_t>(a.shape(0)), static_cast<int64_t>(a.shape(1)),
                            static_cast<int64_t>(a.shape(2)));
  });
  return status;
}

using Pixels = nb::ndarray<const uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

// Encodes images as JPEG files on a thread pool. factor_h, factor_v: sampling factors of luminance, see EncodeOptions.
// Returns for each image the bytes of its file, or its status as a number.
nb::list EncodeJpegs(const std::vector<Pixels>& images, int quality, int factor_h, int factor_v, bool bgr,
                     int pool_id) {
  if (quality < 1 || quality > 100) throw nb::value_error("encode_jpegs: quality");
  for (int factor : {factor_h, factor_v})
    if (factor != 1 && factor != 2 && factor != 4) throw nb::value_error("encode_jpegs: sampling factors");
  if (factor_h * factor_v > 4) throw nb::value_error("encode_jpegs: sampling factors");
  for (const Pixels& x : images) {
    for (int axis : {0, 1})
      if (x.shape(axis) < 1 || static_cast<int64_t>(x.shape(axis)) > kMaxJpegExtent)
        throw nb::value_error("encode_jpegs: size of an image");
    if (x.shape(2) != 1 && x.shape(2) != 3) throw nb::value_error("encode_jpegs: images must have 1 or 3 channels");
  }
  auto pool = Pool(pool_id);
  const EncodeOptions options{quality, factor_h, factor_v, bgr};
  std::vector<EncodedFile> files(images.size());
  std::vector<Status> status(images.size());
  std::vector<int64_t> cost;
  for (const Pixels& x : images) cost.push_back(static_cast<int64_t>(x.size()));
  {
    nb::gil_scoped_release release;
    pool->Run(
        static_cast<int>(images.size()),
        [&](int i) {
          const Pixels& x = images[i];
          status[i] = EncodeJpeg(x.data(), static_cast<int64_t>(x.shape(0)), static_cast<int64_t>(x.shape(1)),
                                 static_cast<int>(x.shape(2)), options, &files[i]);
        },
        LargestFirst(cost));
  }
  nb::list result;
  for (size_t i = 0; i < files.size(); i++) {
    if (status[i] == kOk)
      result.append(nb::bytes(files[i].data.get(), files[i].size));
    else
      result.append(static_cast<int>(status[i]));
    files[i].data.reset();  // its bytes are copied
  }
  return result;
}

template <typename Sample>
using PlaneArray = nb::ndarray<const Sample, nb::ndim<2>, nb::device::cpu>;

// An array as a plane, after a check of its extents. Its rows may be apart.
template <typename Sample>
Plane<Sample> PlaneOf(const PlaneArray<Sample>& x, int64_t height, int64_t width) {
  if (static_cast<int64_t>(x.shape(0)) != height || static_cast<int64_t>(x.shape(1)) != width || x.stride(1) != 1)
    throw nb::value_error("yuv_to_rgb: the planes differ in size");
  return {x.data(), x.stride(0)};
}

// Converts a frame to RGB (YuvToRgb). Planes of u and v may have half the extents of y along either axis.
template <typename Sample>
void ConvertYuv(const PlaneArray<Sample>& y, const PlaneArray<Sample>& u, const PlaneArray<Sample>& v,
                const std::array<int16_t, 6>& factors,
                nb::ndarray<uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu> out) {
  const auto height = static_cast<int64_t>(out.shape(0)), width = static_cast<int64_t>(out.shape(1));
  const auto rows = static_cast<int64_t>(u.shape(0)), columns = static_cast<int64_t>(u.shape(1));
  if (height == 0 || width == 0 || (rows != height && rows != (height + 1) / 2) ||
      (columns != width && columns != (width + 1) / 2))
    throw nb::value_error("yuv_to_rgb: the planes of chroma must have the extents of luma, or half of them");
  const auto [luma, black, red_v, blue_u, green_u, green_v] = factors;
  const YuvFrame<Sample> frame = {PlaneOf<Sample>(y, height, width),
                                  PlaneOf<Sample>(u, rows, columns),
                                  PlaneOf<Sample>(v, rows, columns),
                                  height,
                                  width,
                                  /*half_width=*/columns != width,
                                  /*half_height=*/rows != height,
                                  {luma, black, red_v, blue_u, green_u, green_v}};
  uint8_t* to = out.data();
  nb::gil_scoped_release release;
  YuvToRgb(frame, to);
}

}  // namespace

// Defines the functions for images.
void DefineImages(nb::module_& m) {
  m.def("parse_headers", &ParseHeaders, nb::arg("data"), nb::arg("offsets"), nb::arg("sizes"), nb::arg("info"),
        nb::arg("present").none() = nb::none(), nb::arg("pool") = -1,
        "Parses the headers of a packed batch of encoded images (u8[S, capacity], i32[N] in units of kAlignment, "
        "i64[N]) into info i32[N, columns], on a thread pool; rows of absent ones are 0. Returns the most pixels of an "
        "image, or -1: a header is damaged, or must be read by a library, or its image must be decoded by one.");
  m.def("upright_extents", &GetUprightExtents, nb::arg("info"), nb::arg("adjust_orientation"),
        nb::arg("extents").noconvert(),
        "Height and width of the images as they are seen, i64[N, 2]; 1 x 1 where a row has no image.");
  m.def("set_regions", &WriteRegions, nb::arg("info").noconvert(), nb::arg("adjust_orientation"), nb::arg("start"),
        nb::arg("size"),
        "Sets the regions of the stored rasters that windows of the upright images are, f64[N, 2] of whole numbers. "
        "Returns the rows whose window is empty or outside; they get the status OUT_OF_BOUNDS.");
  m.def("region_shapes", &GetRegionShapes, nb::arg("info"), nb::arg("adjust_orientation"), nb::arg("channels"),
        nb::arg("shapes").noconvert(),
        "Shapes of the upright images that the regions become, i64[N, 3]. channels: 0: those of each file.");
  m.def("random_windows", &DrawWindows, nb::arg("u"), nb::arg("extents"), nb::arg("area"), nb::arg("aspect_ratio"),
        nb::arg("start").noconvert(), nb::arg("size").noconvert(), "Random windows of images, see random_windows.py.");
  m.def("make_jpeg_tables", &MakeJpegTables, nb::arg("data"), nb::arg("offsets"), nb::arg("sizes"), nb::arg("info"),
        nb::arg("usable"), nb::arg("tables"), nb::arg("pool"),
        "Describes each image for GPU kernels (i32[N, TABLE_WORDS]). The first word is 0 if they can't decode it.");
  m.def(
      "compact_jpegs", &CompactJpegs, nb::arg("data"), nb::arg("info"), nb::arg("most"), nb::arg("tables"),
      nb::arg("output_type"), nb::arg("pool"),
      "Decodes the coefficients of progressive files on a thread pool, for GPU kernels to do the rest. Returns them in "
      "a compact form, and describes each image in tables (i32[N, TABLE_WORDS]). None: the CPU must decode the file, "
      "or its coefficients would have more than `most` bytes.");
  m.def("plan_jpeg_workspace", &PlanJpegWorkspace, nb::arg("tables"), nb::arg("shards"),
        nb::arg("subsequence_bits") = 0, nb::arg("groups") = 0, nb::arg("group_bytes") = jpeg::kGroupBytes,
        "Assigns each image its part of its shard's working memory. Returns how many bytes the largest shard needs. "
        "subsequence_bits: how many bits a thread decodes at a time; 0: chosen by the amount of data. groups: in how "
        "many the coefficients share memory, with at least group_bytes of working memory for each; 0: chosen. The "
        "call gets the same group_bytes.");
  m.def("decode_images", &DecodeImages, nb::arg("data"), nb::arg("info"), nb::arg("out"), nb::arg("output_type"),
        nb::arg("adjust_orientation"), nb::arg("fast_idct"), nb::arg("pool"),
        "Decodes images into arrays [H, W, C] on a thread pool. Returns the status of each.");
  m.def("encode_jpegs", &EncodeJpegs, nb::arg("images"), nb::arg("quality"), nb::arg("factor_h"), nb::arg("factor_v"),
        nb::arg("bgr"), nb::arg("pool"),
        "Encodes images [H, W, 1 or 3] as baseline JPEG on a thread pool. Returns the bytes of each file, or its "
        "status.");
  const char* yuv_to_rgb =
      "Converts a frame of a video to RGB [H, W, 3]. Its samples are bytes, or words with 10 bits. Planes of chroma "
      "may have half of the extents, rounded up. factors: see YuvFactors.";
  m.def("yuv_to_rgb", &ConvertYuv<uint8_t>, nb::arg("y").noconvert(), nb::arg("u").noconvert(),
        nb::arg("v").noconvert(), nb::arg("factors"), nb::arg("out"), yuv_to_rgb);
  m.def("yuv_to_rgb", &ConvertYuv<uint16_t>, nb::arg("y").noconvert(), nb::arg("u").noconvert(),
        nb::arg("v").noconvert(), nb::arg("factors"), nb::arg("out"), yuv_to_rgb);
}

}  // namespace jaxdali
