// Finds the starts of strips. In reading order: Cut decides on their number and uses restart markers, if there are any;
// otherwise Synchronise divides the data into segments, SkipOver goes through one, and Connect joins them.
#include "ffi/jpeg/strips.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "ffi/common/thread_pool.h"

namespace jaxdali::jpeg {
namespace {

constexpr int kSegmentsPerStrip = 4;     // so that threads get equal work even if some begin late
constexpr int64_t kMeetingBytes = 4096;  // bytes of a segment in which another decoder may meet the segment's own
constexpr int kMaxGuesses = 100;         // tries to find the first MCU of a segment

bool IsBefore(const Checkpoint& a, const Checkpoint& b) { return a.byte != b.byte ? a.byte < b.byte : a.bit < b.bit; }

// Returns the end of the scan that contains `from`: a marker that is not a restart marker, or the end of the data.
// Calls restart(marker) for restart markers.
template <class Restart>
const uint8_t* EndOfScan(const uint8_t* from, const uint8_t* end, Restart restart) {
  while (end - from >= 2) {
    from = static_cast<const uint8_t*>(std::memchr(from, 0xFF, static_cast<size_t>(end - from - 1)));
    if (!from) break;
    // D0 to D7 are restart markers; FF before 00 is data.
    if ((from[1] & 0xF8) == 0xD0)
      restart(from);
    else if (from[1] != 0)
      return from;
    from += 2;
  }
  return end;
}

// Data between the starts of two strips, and the result of skipping through them.
struct Segment {
  const uint8_t* begin;
  const uint8_t* end;
  std::vector<Checkpoint> meetings;  // MCUs near its beginning, counted from 0, where another decoder may meet it
  Checkpoint last;                   // the first MCU after its end
  bool complete = false;             // whether `last` was found
};

// Skips the MCUs of a segment. `first`: the known start of the first segment; null: it is guessed. A guess is that
// an MCU begins with the first bit of a byte. If the data turn out to be damaged from there, the next byte is tried.
void SkipOver(Segment* s, const Checkpoint* first, BaselineDecoder* decoder) {
  Checkpoint position = first ? *first : Checkpoint{/*mcu=*/0, s->begin, /*bit=*/0, /*dc=*/{}};
  decoder->MoveTo(position);
  bool is_near_begin = !first;
  for (int guesses = 0; guesses < kMaxGuesses;) {
    // Finding a position is slow, so it is only done near the beginning and at the end.
    if (is_near_begin || !decoder->IsBefore(s->end)) {
      position = decoder->Position();
      if (position.byte >= s->end) {
        s->last = position;
        s->complete = true;
        return;
      }
      is_near_begin &= position.byte < s->begin + kMeetingBytes;
      if (is_near_begin) s->meetings.push_back(position);
    }
    if (decoder->Skip(1)) continue;
    // Damage far from the beginning is real, or the guess never synchronised: the segment stays incomplete.
    if (!is_near_begin) return;
    s->meetings.clear();
    decoder->MoveTo({/*mcu=*/0, position.byte + 1, /*bit=*/0, /*dc=*/{}});
    guesses++;
  }
}

// The end of segment `s`, whose decoder counted MCUs and DC predictions from a guess. Another decoder met it at the MCU
// that is `meeting` in its count and `position` in the true one.
Checkpoint EndOf(const Segment& s, const Checkpoint& meeting, const Checkpoint& position) {
  Checkpoint end = s.last;
  end.mcu += position.mcu - meeting.mcu;
  for (int i = 0; i < 3; i++) end.dc[i] += position.dc[i] - meeting.dc[i];
  return end;
}

// The first MCU after each segment, for as many segments as possible.
std::vector<Checkpoint> Connect(const std::vector<Segment>& segments, BaselineDecoder* decoder) {
  std::vector<Checkpoint> ends;
  if (!segments[0].complete) return ends;
  Checkpoint position = segments[0].last;
  ends.push_back(position);
  for (size_t k = 1; k < segments.size(); k++) {
    const Segment& s = segments[k];
    auto meeting = s.meetings.begin();
    decoder->MoveTo(position);
    while (position.byte < s.end) {
      while (meeting != s.meetings.end() && IsBefore(*meeting, position)) meeting++;
      // Both decoders are at the same bit: from here on the segment's own has already gone to its end.
      if (s.complete && meeting != s.meetings.end() && !IsBefore(position, *meeting)) {
        position = EndOf(s, *meeting, position);
        break;
      }
      if (!decoder->Skip(1)) return ends;
      // Positions are needed as long as a meeting is possible, and at the end.
      if (meeting != s.meetings.end() || !decoder->IsBefore(s.end)) position = decoder->Position();
    }
    ends.push_back(position);
  }
  return ends;
}

// Checkpoints about `step` bytes apart from `start` to the byte `end_byte`. All idle threads search for them.
std::vector<Checkpoint> Synchronise(const BaselineDecoder& decoder, const Checkpoint& start, const uint8_t* end_byte,
                                    int64_t step, int threads, ThreadPool* pool) {
  std::vector<Segment> segments;
  // Segments are cut from the end, so that the first one, whose start is known, takes the remainder.
  for (const uint8_t* end = end_byte; end > start.byte; end -= std::min<int64_t>(step, end - start.byte)) {
    // The first segment may be half a step longer, so that none is short.
    const uint8_t* begin = end - start.byte < step + step / 2 ? start.byte : end - step;
    segments.push_back({begin, end, /*meetings=*/{}, /*last=*/{}});
    if (begin == start.byte) break;
  }
  if (segments.empty()) return {};
  std::reverse(segments.begin(), segments.end());
  for (Segment& s : segments)  // not between FF and its stuffing
    if (s.begin > start.byte && s.begin[-1] == 0xFF) s.begin++;
  const int n = static_cast<int>(segments.size());
  // Threads take segments from the front, in file order.
  std::atomic<int> next{0};
  pool->Run(std::min(n, threads), [&](int) {
    try {  // each thread has a decoder of its own
      auto segment_decoder = std::make_unique<BaselineDecoder>(decoder.kernels());
      segment_decoder->Follow(decoder, decoder.region());
      for (int k = next++; k < n; k = next++) SkipOver(&segments[k], k == 0 ? &start : nullptr, segment_decoder.get());
    } catch (const std::bad_alloc&) {  // the segment stays incomplete
    }
  });
  auto connecting_decoder = std::make_unique<BaselineDecoder>(decoder.kernels());
  connecting_decoder->Follow(decoder, decoder.region());
  return Connect(segments, connecting_decoder.get());
}

}  // namespace

// Cuts the rows up to `end_row` into strips for this thread and the idle ones. Empty: it is not worthwhile; see
// strips.h.
std::vector<Strip> Cut(BaselineDecoder* decoder, int end_row, Helpers* helpers) {
  const int idle = helpers->pool ? helpers->pool->idle() : 0;
  // Scans of a progressive file depend on each other.
  if (idle == 0 || decoder->progressive()) return {};
  // From here on no strips later: either there are some now, or it is not worthwhile.
  ThreadPool* const pool = std::exchange(helpers->pool, nullptr);
  const int columns = decoder->mcu_columns(), bands = decoder->bands();
  const int first_band = std::max(decoder->next_band(), decoder->first_band());
  const int end_band = std::min(bands, (end_row - 1) / (decoder->FirstRowFrom(1) - decoder->FirstRowFrom(0)) + 1);
  if (end_band <= first_band) return {};
  // Assumes that each row of MCUs has about as many bytes.
  const Checkpoint position = decoder->Position();
  // The byte at which a band begins, if the scan ends at `end`; and the number of strips that are worthwhile then.
  auto place_of = [&](int band, const uint8_t* end) {
    return position.byte + (end - position.byte) * (band - decoder->next_band()) / (bands - decoder->next_band());
  };
  auto strips_of = [&](const uint8_t* end) {
    return std::min<int64_t>(idle + 1, (place_of(end_band, end) - place_of(first_band, end)) / helpers->min_bytes);
  };
  // First with the end of the file, which costs nothing; then with the true end of the scan.
  if (strips_of(decoder->end()) < 2) return {};

  std::vector<Checkpoint> starts;
  const int interval = decoder->restart_interval();
  int next_mcu = interval ? (std::max(position.mcu - 1, 0) / interval + 1) * interval : 0;  // after a restart marker
  // libjpeg-turbo goes on with other MCUs at a marker whose number is wrong, so nothing may begin there or behind it.
  bool is_ordered = true;
  const uint8_t* end = EndOfScan(position.byte, decoder->end(), [&](const uint8_t* marker) {
    // Restart markers give the start of an MCU, with predictions of 0. Those after the last MCU mean nothing.
    if (!interval || next_mcu >= bands * columns) return;
    is_ordered &= marker[1] == 0xD0 + ((next_mcu / interval - 1) & 7);
    if (!is_ordered) return;
    // Strips begin at rows of MCUs, so the first marker of each row is enough.
    if (starts.empty() || starts.back().mcu / columns != next_mcu / columns)
      starts.push_back({next_mcu, marker, /*bit=*/0, /*dc=*/{}});
    next_mcu += interval;
  });
  const int64_t n = strips_of(end);
  if (n < 2) return {};
  const uint8_t* first = place_of(first_band, end);
  const int64_t num_bytes = place_of(end_band, end) - first, step = num_bytes / (n * kSegmentsPerStrip);
  if (!interval)
    starts = Synchronise(*decoder, position, first + num_bytes / n * (n - 1), step, static_cast<int>(n), pool);

  std::vector<Strip> strips{{decoder->next_row(), position}};
  auto band_of = [&](const Checkpoint& c) { return (c.mcu + columns - 1) / columns; };
  // Checkpoints above the first band that is needed replace the start of the first strip, which then skips less.
  auto start = starts.begin();
  for (; start != starts.end() && band_of(*start) <= first_band; start++) strips[0].start = *start;
  for (int64_t k = 1; k < n; k++) {
    // Strip k begins at the first checkpoint after k/n of the bytes, less half the distance of checkpoints.
    while (start != starts.end() && start->byte < first + num_bytes / n * k - step / 2) start++;
    if (start == starts.end()) break;
    const int row = decoder->FirstRowFrom(band_of(*start));
    // A strip's first row is the first one that its decoder can make completely.
    if (row > strips.back().row && row < end_row) strips.push_back({row, *start});
  }
  if (strips.size() < 2) strips.clear();
  return strips;
}

}  // namespace jaxdali::jpeg
