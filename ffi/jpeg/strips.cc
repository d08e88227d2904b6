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

constexpr int kSegments = 4;        // per strip, so that threads get equal work even if some begin late
constexpr int64_t kMeeting = 4096;  // bytes of a segment in which another decoder may meet the segment's own
constexpr int kGuesses = 100;       // tries to find its first MCU

bool IsBefore(const Checkpoint& a, const Checkpoint& b) { return a.byte != b.byte ? a.byte < b.byte : a.bit < b.bit; }

// Where the scan that contains `from` ends: at a marker that is not a restart marker. Calls restart(marker) for restart
// markers.
template <class Restart>
const uint8_t* EndOfScan(const uint8_t* from, const uint8_t* end, Restart restart) {
  while (end - from >= 2) {
    from = static_cast<const uint8_t*>(std::memchr(from, 0xFF, static_cast<size_t>(end - from - 1)));
    if (!from) break;
    if ((from[1] & 0xF8) == 0xD0)
      restart(from);
    else if (from[1] != 0)
      return from;
    from += 2;
  }
  return end;
}

// Data between the beginnings of two strips.
struct Segment {
  const uint8_t* begin;
  const uint8_t* end;
  std::vector<Checkpoint> seen;  // MCUs near its beginning, counted from 0
  Checkpoint last;               // the first MCU after its end
  bool complete = false;         // whether that was found
};

// Skips the MCUs of a segment. `first`: where the first MCU of the first segment begins; null: guess.
void SkipOver(Segment* s, const Checkpoint* first, BaselineDecoder* decoder) {
  Checkpoint at = first ? *first : Checkpoint{0, s->begin, 0, {}};
  decoder->MoveTo(at);
  bool meeting = !first;
  for (int guesses = 0; guesses < kGuesses;) {
    if (meeting || !decoder->IsBefore(s->end)) {
      at = decoder->Here();
      if (at.byte >= s->end) {
        s->last = at;
        s->complete = true;
        return;
      }
      meeting &= at.byte < s->begin + kMeeting;
      if (meeting) s->seen.push_back(at);
    }
    if (decoder->Skip(1)) continue;
    if (!meeting) return;
    s->seen.clear();
    decoder->MoveTo({0, at.byte + 1, 0, {}});
    guesses++;
  }
}

// The end of segment `s`, whose decoder counted from a guess. Another decoder met it at the MCU that is `seen` in its
// count and `at` in the true one.
Checkpoint EndOf(const Segment& s, const Checkpoint& seen, const Checkpoint& at) {
  Checkpoint end = s.last;
  end.mcu += at.mcu - seen.mcu;
  for (int i = 0; i < 3; i++) end.dc[i] += at.dc[i] - seen.dc[i];
  return end;
}

// The first MCU after each segment, for as many segments as possible.
std::vector<Checkpoint> Connect(const std::vector<Segment>& segments, BaselineDecoder* decoder) {
  std::vector<Checkpoint> ends;
  if (!segments[0].complete) return ends;
  Checkpoint at = segments[0].last;
  ends.push_back(at);
  for (size_t k = 1; k < segments.size(); k++) {
    const Segment& s = segments[k];
    auto seen = s.seen.begin();
    decoder->MoveTo(at);
    while (at.byte < s.end) {
      while (seen != s.seen.end() && IsBefore(*seen, at)) seen++;
      if (s.complete && seen != s.seen.end() && !IsBefore(at, *seen)) {
        at = EndOf(s, *seen, at);
        break;
      }
      if (!decoder->Skip(1)) return ends;
      if (seen != s.seen.end() || !decoder->IsBefore(s.end)) at = decoder->Here();
    }
    ends.push_back(at);
  }
  return ends;
}

// Checkpoints about `step` bytes apart between two places. All idle threads search for them.
std::vector<Checkpoint> Synchronise(const BaselineDecoder& decoder, const Checkpoint& here, const uint8_t* last,
                                    int64_t step, int threads, ThreadPool* pool) {
  std::vector<Segment> segments;
  for (const uint8_t* end = last; end > here.byte; end -= std::min<int64_t>(step, end - here.byte)) {
    const uint8_t* begin = end - here.byte < step + step / 2 ? here.byte : end - step;
    segments.push_back({begin, end, {}, {}});
    if (begin == here.byte) break;
  }
  if (segments.empty()) return {};
  std::reverse(segments.begin(), segments.end());
  for (Segment& s : segments)  // not between a byte and its stuffing
    if (s.begin > here.byte && s.begin[-1] == 0xFF) s.begin++;
  const int n = static_cast<int>(segments.size());
  std::atomic<int> next{0};
  pool->Run(std::min(n, threads), [&](int) {
    try {
      auto own = std::make_unique<BaselineDecoder>(decoder.kernels());
      own->Follow(decoder, decoder.region());
      for (int k = next++; k < n; k = next++) SkipOver(&segments[k], k == 0 ? &here : nullptr, own.get());
    } catch (const std::bad_alloc&) {  // the segment stays incomplete
    }
  });
  auto own = std::make_unique<BaselineDecoder>(decoder.kernels());
  own->Follow(decoder, decoder.region());
  return Connect(segments, own.get());
}

}  // namespace

std::vector<Strip> Cut(BaselineDecoder* decoder, int end_row, Helpers* helpers) {
  const int idle = helpers->pool ? helpers->pool->idle() : 0;
  if (idle == 0 || decoder->progressive()) return {};
  ThreadPool* const pool = std::exchange(helpers->pool, nullptr);
  const int columns = decoder->mcu_columns(), bands = decoder->bands();
  const int first_band = std::max(decoder->next_band(), decoder->first_band());
  const int end_band = std::min(bands, (end_row - 1) / (decoder->FirstRowFrom(1) - decoder->FirstRowFrom(0)) + 1);
  if (end_band <= first_band) return {};
  // Assumes that each row of MCUs has about as many bytes.
  const Checkpoint here = decoder->Here();
  auto place_of = [&](int band, const uint8_t* end) {
    return here.byte + (end - here.byte) * (band - decoder->next_band()) / (bands - decoder->next_band());
  };
  auto strips_of = [&](const uint8_t* end) {
    return std::min<int64_t>(idle + 1, (place_of(end_band, end) - place_of(first_band, end)) / helpers->least);
  };
  if (strips_of(decoder->end()) < 2) return {};

  std::vector<Checkpoint> starts;
  const int interval = decoder->restart_interval();
  int next_mcu = interval ? (std::max(here.mcu - 1, 0) / interval + 1) * interval : 0;  // after a restart marker
  // libjpeg-turbo goes on with other MCUs at a marker whose number is wrong, so nothing may begin there or behind it.
  bool ordered = true;
  const uint8_t* end = EndOfScan(here.byte, decoder->end(), [&](const uint8_t* marker) {
    if (!interval || next_mcu >= bands * columns) return;
    ordered &= marker[1] == 0xD0 + ((next_mcu / interval - 1) & 7);
    if (!ordered) return;
    if (starts.empty() || starts.back().mcu / columns != next_mcu / columns)
      starts.push_back({next_mcu, marker, 0, {}});
    next_mcu += interval;
  });
  const int64_t n = strips_of(end);
  if (n < 2) return {};
  const uint8_t* first = place_of(first_band, end);
  const int64_t size = place_of(end_band, end) - first, step = size / (n * kSegments);
  if (!interval) starts = Synchronise(*decoder, here, first + size / n * (n - 1), step, static_cast<int>(n), pool);

  std::vector<Strip> strips{{decoder->next_row(), here}};
  auto band_of = [&](const Checkpoint& c) { return (c.mcu + columns - 1) / columns; };
  auto start = starts.begin();
  for (; start != starts.end() && band_of(*start) <= first_band; start++) strips[0].start = *start;
  for (int64_t k = 1; k < n; k++) {
    while (start != starts.end() && start->byte < first + size / n * k - step / 2) start++;
    if (start == starts.end()) break;
    const int row = decoder->FirstRowFrom(band_of(*start));
    if (row > strips.back().row && row < end_row) strips.push_back({row, *start});
  }
  if (strips.size() < 2) strips.clear();
  return strips;
}

}  // namespace jaxdali::jpeg
