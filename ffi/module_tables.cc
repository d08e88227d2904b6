#include <cctype>
#include <string>

#include "ffi/common/status.h"
#include "ffi/cpu_codecs/image_header.h"
#include "ffi/host/files.h"
#include "ffi/host/record_parser.h"
#include "ffi/host/tar.h"
#include "ffi/module_parts.h"

namespace nb = nanobind;

namespace jaxdali {
namespace {

// kOutOfBounds, or region_y, as Python writes constants: OUT_OF_BOUNDS, REGION_Y.
std::string Constant(const std::string& name) {
  std::string out;
  for (size_t i = name[0] == 'k' ? 1 : 0; i < name.size(); i++) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (std::isupper(c) && !out.empty()) out += '_';
    out += static_cast<char>(std::toupper(c));
  }
  return out;
}

enum class InfoColumn : int {
#define JAXDALI_INFO_COLUMN(name) name,
  JAXDALI_INFO_TABLE(JAXDALI_INFO_COLUMN)
#undef JAXDALI_INFO_COLUMN
};

}  // namespace

void DefineTables(nb::module_& m) {
  nb::enum_<Status> status(m, "Status", nb::is_arithmetic(), "why a sample failed");
#define JAXDALI_STATUS_VALUE(name, code, text) status.value(Constant(#name).c_str(), name, text);
  JAXDALI_STATUS_TABLE(JAXDALI_STATUS_VALUE)
#undef JAXDALI_STATUS_VALUE
  nb::enum_<Format> format(m, "Format", nb::is_arithmetic(), "of an encoded image");
#define JAXDALI_FORMAT_VALUE(name) format.value(Constant(#name).c_str(), Format::name);
  JAXDALI_FORMAT_TABLE(JAXDALI_FORMAT_VALUE)
#undef JAXDALI_FORMAT_VALUE
  nb::enum_<InfoColumn> info(m, "Info", nb::is_arithmetic(), "columns of what headers say");
#define JAXDALI_INFO_VALUE(name) info.value(Constant(#name).c_str(), InfoColumn::name);
  JAXDALI_INFO_TABLE(JAXDALI_INFO_VALUE)
#undef JAXDALI_INFO_VALUE
  nb::enum_<RecordFormat>(m, "RecordFormat", nb::is_arithmetic(), "of a record in a container")
      .value("BYTES", RecordFormat::kBytes)
      .value("EXAMPLE", RecordFormat::kExample)
      .value("IMAGE_RECORD", RecordFormat::kImageRecord)
      .value("DATUM", RecordFormat::kDatum)
      .value("TENSOR_PROTOS", RecordFormat::kTensorProtos)
      .value("TAR_MEMBER", RecordFormat::kTarMember);
  nb::enum_<ValueType>(m, "ValueType", nb::is_arithmetic(), "of what a record's field consists of")
      .value("NONE", ValueType::kNone)
      .value("BYTES", ValueType::kBytes)
      .value("FLOATS", ValueType::kFloats)
      .value("INTS", ValueType::kInts);
  nb::enum_<TarSamples::Missing>(m, "Missing", nb::is_arithmetic(), "what becomes of a sample that lacks a member")
      .value("EMPTY", TarSamples::Missing::kEmpty)
      .value("SKIP", TarSamples::Missing::kSkip)
      .value("ERROR", TarSamples::Missing::kError);
  m.attr("SIZE_CHANGED") = kSizeChanged;
  m.def(
      "status_table",
      [] {
        nb::dict d;
#define JAXDALI_STATUS_ROW(name, code, text) d[nb::int_(code)] = text;
        JAXDALI_STATUS_TABLE(JAXDALI_STATUS_ROW)
#undef JAXDALI_STATUS_ROW
        return d;
      },
      "status codes to texts");
}

}  // namespace jaxdali
