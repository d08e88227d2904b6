// The entropy-coded bytes of a scan without their stuffing (T.81, B.1.1.5: FF in the data is followed by 00), about 16
// KB at a time, so that they stay in the cache. Looking for stuffing while bits are read would cost a tenth of the
// decoding time.
#ifndef JAXDALI_FFI_JPEG_SCAN_BYTES_H_
#define JAXDALI_FFI_JPEG_SCAN_BYTES_H_

#include <cstdint>
#include <memory>

namespace jaxdali::jpeg {

class ScanBytes {
 public:
  // Bytes after limit() that can be read without a check. They are zeros after the end of the data.
  static constexpr int kAhead = 4608;

  ScanBytes() : buffer_(new uint8_t[kBefore + 2 * kPiece + 2 * kAhead]) {}

  // Begins with the data at `from`. Returns the address of the copied bytes.
  const uint8_t* Start(const uint8_t* from, const uint8_t* end);
  // Begins after the two bytes of the marker.
  const uint8_t* StartBehindMarker() { return Start(source_ + 2, end_); }
  // Copies more bytes. `position` is the next one to read; its new address is returned.
  const uint8_t* Continue(const uint8_t* position);

  // If the next byte to read is beyond this one, call Continue; if complete(), the data have ended.
  const uint8_t* limit() const { return limit_; }
  // Whether a marker or the end of the data follows the bytes that are there.
  bool complete() const { return complete_; }
  const uint8_t* filled() const { return filled_; }
  // If the data are complete: the code of the marker after them; 0: none.
  int marker() const { return end_ - source_ >= 2 && source_[0] == 0xFF ? source_[1] : 0; }
  // Bytes of the file from that marker on: not copied yet.
  int64_t bytes_left() const { return end_ - source_; }

  // The place in the file of a copied byte, which is at most kBefore before the argument of the last Continue. Fastest
  // for ascending places.
  const uint8_t* Place(const uint8_t* position);
  // True: the byte comes before `place` in the file. False: it may be anywhere. Stuffing that was removed between the
  // byte and the end of the copy only makes it come earlier.
  bool IsBefore(const uint8_t* position, const uint8_t* place) const { return source_ - (filled_ - position) < place; }

 private:
  static constexpr int64_t kPiece = 16384, kBefore = 16;

  std::unique_ptr<uint8_t[]> buffer_;
  const uint8_t *source_ = nullptr, *end_ = nullptr;  // in the file, not copied yet
  uint8_t* filled_ = nullptr;                         // end of the data in the buffer
  const uint8_t* limit_ = nullptr;
  bool complete_ = false;
  // A copied byte and its place in the file, from which Place counts.
  const uint8_t *known_position_ = nullptr, *known_place_ = nullptr;
};

}  // namespace jaxdali::jpeg

#endif  // JAXDALI_FFI_JPEG_SCAN_BYTES_H_
