// Enums and constants that C++ and Python share, and functions that NumPy rounds otherwise. Each value is named once,
// in the header that defines it.
#include <cmath>
#include <string>

#include "ffi/chain/chain.h"
#include "ffi/common/batch.h"
#include "ffi/common/border.h"
#include "ffi/common/interp.h"
#include "ffi/common/samples.h"
#include "ffi/common/stages.h"
#include "ffi/common/status.h"
#include "ffi/common/thread_pool.h"
#include "ffi/cpu_codecs/image_header.h"
#include "ffi/cuda_jpeg/table.h"
#include "ffi/decode/decode.h"
#include "ffi/equalize/equalize.h"
#include "ffi/host/ascii.h"
#include "ffi/host/files.h"
#include "ffi/host/philox.h"
#include "ffi/host/record_parser.h"
#include "ffi/host/riegeli.h"
#include "ffi/host/tar.h"
#include "ffi/jpeg_distortion/jpeg_distortion.h"
#include "ffi/module_parts.h"
#include "ffi/reduce/reduce.h"
#include "ffi/remap/remap.h"
#include "ffi/stencil/stencil.h"

namespace nb = nanobind;

namespace jaxdali {
namespace {

// Converts kOutOfBounds or region_y to the form of Python constants: OUT_OF_BOUNDS, REGION_Y.
std::string Constant(const std::string& name) {
  std::string out;
  for (size_t i = name[0] == 'k' ? 1 : 0; i < name.size(); i++) {
    if (ascii::IsUpper(name[i]) && !out.empty()) out += '_';
    out += ascii::ToUpper(name[i]);
  }
  return out;
}

// The columns of ImageInfo by number, for Python.
enum class InfoColumn : int {
#define JAXDALI_INFO_COLUMN(name) name,
  JAXDALI_INFO_TABLE(JAXDALI_INFO_COLUMN)
#undef JAXDALI_INFO_COLUMN
};

}  // namespace

// Defines the enums, constants and functions.
void DefineTables(nb::module_& m) {
  // Enums that C++ defines by tables (X macros): a value added there appears here.
  nb::enum_<Status> status(m, "Status", nb::is_arithmetic(), "Why a sample failed.");
#define JAXDALI_STATUS_VALUE(name, code, text) status.value(Constant(#name).c_str(), name, text);
  JAXDALI_STATUS_TABLE(JAXDALI_STATUS_VALUE)
#undef JAXDALI_STATUS_VALUE
  nb::enum_<Format> format(m, "Format", nb::is_arithmetic(), "Format of an encoded image.");
#define JAXDALI_FORMAT_VALUE(name) format.value(Constant(#name).c_str(), Format::name);
  JAXDALI_FORMAT_TABLE(JAXDALI_FORMAT_VALUE)
#undef JAXDALI_FORMAT_VALUE
  nb::enum_<InfoColumn> info(m, "Info", nb::is_arithmetic(), "Columns of the info operand, see image_header.h.");
#define JAXDALI_INFO_VALUE(name) info.value(Constant(#name).c_str(), InfoColumn::name);
  JAXDALI_INFO_TABLE(JAXDALI_INFO_VALUE)
#undef JAXDALI_INFO_VALUE
  // Records and random numbers of the host pass.
  nb::enum_<RecordFormat>(m, "RecordFormat", nb::is_arithmetic(), "Format of the records in a container.")
      .value("BYTES", RecordFormat::kBytes)
      .value("EXAMPLE", RecordFormat::kExample)
      .value("IMAGE_RECORD", RecordFormat::kImageRecord)
      .value("DATUM", RecordFormat::kDatum)
      .value("TENSOR_PROTOS", RecordFormat::kTensorProtos)
      .value("TAR_MEMBER", RecordFormat::kTarMember)
      .value("MESSAGE", RecordFormat::kMessage);
  nb::enum_<ValueType>(m, "ValueType", nb::is_arithmetic(), "Type of the values of a record's field.")
      .value("NONE", ValueType::kNone)
      .value("BYTES", ValueType::kBytes)
      .value("FLOATS", ValueType::kFloats)
      .value("INTS", ValueType::kInts);
  nb::enum_<TarSamples::Missing>(m, "Missing", nb::is_arithmetic(), "What to do with a sample that lacks a member.")
      .value("EMPTY", TarSamples::Missing::kEmpty)
      .value("SKIP", TarSamples::Missing::kSkip)
      .value("ERROR", TarSamples::Missing::kError);
  nb::enum_<ChunkError>(m, "ChunkError", nb::is_arithmetic(), "The error found in a chunk of a Riegeli file.")
      .value("NONE", kGoodChunk)
      .value("HEADER_UNREAD", kHeaderUnread)
      .value("HEADER_HASH", kHeaderHash)
      .value("OTHER_CHUNK", kOtherChunk)
      .value("DATA_HASH", kDataHash);
  nb::enum_<Distribution>(m, "Distribution", nb::is_arithmetic(), "Distribution of random numbers.")
      .value("UNIT", Distribution::kUnit)
      .value("NORMAL", Distribution::kNormal);
  // Attributes of kernels.
  nb::enum_<ImageType>(m, "ImageType", nb::is_arithmetic(), "Colour space of a decoded image.")
      .value("RGB", ImageType::kRgb)
      .value("BGR", ImageType::kBgr)
      .value("GRAY", ImageType::kGray)
      .value("YCBCR", ImageType::kYcbcr)
      .value("ANY", ImageType::kAny);
  nb::enum_<Interp>(m, "Interp", nb::is_arithmetic(), "Filter for resizing and warping.")
      .value("NN", Interp::kNN)
      .value("LINEAR", Interp::kLinear)
      .value("CUBIC", Interp::kCubic)
      .value("LANCZOS3", Interp::kLanczos3)
      .value("TRIANGULAR", Interp::kTriangular)
      .value("GAUSSIAN", Interp::kGaussian)
      .value("AREA", Interp::kArea);
  nb::enum_<Border>(m, "Border", nb::is_arithmetic(), "The values beyond the border.")
      .value("CONSTANT", Border::kConstant, "a constant value")
      .value("REFLECT_101", Border::kReflect101, "dcb|abcd|cba: mirrored at the centre of the outermost element")
      .value("REFLECT_1001", Border::kReflect1001, "cba|abcd|dcb: mirrored at its edge")
      .value("WRAP", Border::kWrap, "bcd|abcd|abc")
      .value("REPLICATE", Border::kReplicate, "aaa|abcd|ddd");
  nb::enum_<Points>(m, "Points", nb::is_arithmetic(), "How the source point of a pixel is found, see remap.h.")
      .value("GIVEN", Points::kGiven)
      .value("PROJECTIVE", Points::kProjective)
      .value("SPHERE", Points::kSphere)
      .value("WATER", Points::kWater)
      .value("JITTER", Points::kJitter)
      .value("GRID", Points::kGrid);
  nb::enum_<Reduction>(m, "Reduction", nb::is_arithmetic(), "Reduction over axes.")
      .value("SUM", Reduction::kSum)
      .value("SQUARES", Reduction::kSquares)
      .value("MIN", Reduction::kMin)
      .value("MAX", Reduction::kMax);
  nb::enum_<StencilReduction>(m, "StencilReduction", nb::is_arithmetic(), "Reduction of the window around an element.")
      .value("SUM", StencilReduction::kSum)
      .value("MEDIAN", StencilReduction::kMedian)
      .value("MAX", StencilReduction::kMax)
      .value("MIN", StencilReduction::kMin);
  // Sizes that operands and working memory depend on.
  m.attr("ALIGNMENT") = kAlignment;
  m.attr("PLAN_BYTES") = kPlanBytes;
  m.attr("STATUSES_OF_STAGE") = kStatusesOfStage;
  m.attr("EXTENSION_VERSION") = kExtensionVersion;
  m.attr("MOST_STAGES") = kMostStages;
  m.attr("MOST_TILE_CHANNELS") = kMostTileChannels;
  m.attr("INFO_COLUMNS") = kInfoColumns;
  m.attr("TABLE_WORDS") = jpeg::kTableWords;
  m.attr("JPEG_GROUP_BYTES") = jpeg::kGroupBytes;
  m.attr("BYTES_PER_THREAD") = jpeg::kBytesPerThread;
  m.attr("OTHER_HEAD") = kOtherHead;
  m.attr("SIZE_CHANGED") = kSizeChanged;
  m.attr("CHUNK_HEADER") = kChunkHeader;
  m.attr("MOST_WINDOW") = kMostWindow;
  m.attr("MCU_SIDE") = kMcuSide;
  m.attr("MCU_BYTES") = kMcuBytes;
  m.attr("LAB_SIZES") = nb::make_tuple(Lab::kLinear, Lab::kRoot, Lab::kLightness, Lab::kGamma);
  // NumPy's versions of these round differently on some CPUs.
  m.def("expf", [](float x) { return std::exp(x); }, nb::arg("x"), "The C library's, in single precision.");
  m.def("logf", [](float x) { return std::log(x); }, nb::arg("x"), "The C library's, in single precision.");
  m.def(
      "status_table",
      [] {
        nb::dict d;
#define JAXDALI_STATUS_ROW(name, code, text) d[nb::int_(code)] = text;
        JAXDALI_STATUS_TABLE(JAXDALI_STATUS_ROW)
#undef JAXDALI_STATUS_ROW
        return d;
      },
      "Maps status codes to texts.");
}

}  // namespace jaxdali
