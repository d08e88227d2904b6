// Rewrites JPEG files as progressive ones (T.81, Annex G) with libjpeg-turbo, with the same coefficients and random
// scans.
#ifndef JAXDALI_FFI_FUZZ_PROGRESSIVE_WRITER_H_
#define JAXDALI_FFI_FUZZ_PROGRESSIVE_WRITER_H_

// clang-format off
#include <cstdio>  // jpeglib.h needs FILE and size_t
#include <jpeglib.h>
// clang-format on

#include <algorithm>
#include <csetjmp>
#include <vector>

#include "ffi/fuzz/mutator.h"

namespace jaxdali {

// Scans that transmit all bits of n components' coefficients, in a random order of those that the standard allows.
inline std::vector<jpeg_scan_info> RandomScans(int n, bool may_interleave, Mutator* random) {
  auto below = [&](int limit) { return random->below(static_cast<size_t>(limit)); };
  std::vector<jpeg_scan_info> scans;
  // Adds scans of DC, of all components at once or of each. A scan has the number and the numbers of its components,
  // Ss, Se, Ah, Al (G.1.1.1).
  auto dc = [&](int high, int low) {
    if (may_interleave && below(3)) {
      jpeg_scan_info s{n, {0, 1, 2, 3}, 0, 0, high, low};
      scans.push_back(s);
    } else {
      for (int c = 0; c < n; c++) scans.push_back({1, {c, 0, 0, 0}, 0, 0, high, low});
    }
  };
  int dc_low = below(3);  // the lowest bit of DC that is transmitted so far
  dc(0, dc_low);
  // The AC scans of each component, in order. Each further bit divides the band into new ranges.
  std::vector<std::vector<jpeg_scan_info>> ac(static_cast<size_t>(n));
  for (int c = 0; c < n; c++) {
    const int first_low = below(4);
    for (int low = first_low; low >= 0; low--) {
      for (int first = 1; first <= 63;) {
        const int last = below(2) ? 63 : std::min(63, first + below(20));
        ac[static_cast<size_t>(c)].push_back({1, {c, 0, 0, 0}, first, last, low == first_low ? 0 : low + 1, low});
        first = last + 1;
      }
    }
    // In reverse, so that the next one is the last element.
    std::reverse(ac[static_cast<size_t>(c)].begin(), ac[static_cast<size_t>(c)].end());
  }
  // Takes the next scan of DC or of a random component, until none is left.
  for (;;) {
    std::vector<int> components_left;
    for (int c = 0; c < n; c++)
      if (!ac[static_cast<size_t>(c)].empty()) components_left.push_back(c);
    if (dc_low > 0 && (components_left.empty() || below(4) == 0)) {
      dc(dc_low, dc_low - 1);
      dc_low--;
    } else if (components_left.empty()) {
      break;
    } else {
      auto& ac_scans = ac[static_cast<size_t>(
          components_left[static_cast<size_t>(below(static_cast<int>(components_left.size())))])];
      scans.push_back(ac_scans.back());
      ac_scans.pop_back();
    }
  }
  if (below(5) == 0)
    scans.resize(1 + static_cast<size_t>(below(static_cast<int>(scans.size()))));  // drops the last scans
  return scans;
}

// Rewrites a file as a progressive one with random scans. Returns an empty file if libjpeg-turbo can't read the file or
// can't write one of its scans.
inline Data AsProgressive(const Data& file, Mutator* random) {
  struct Error {
    jpeg_error_mgr base;
    std::jmp_buf jump;
  } error;
  jpeg_decompress_struct source{};
  jpeg_compress_struct target{};
  source.err = target.err = jpeg_std_error(&error.base);
  error.base.error_exit = [](j_common_ptr c) { std::longjmp(reinterpret_cast<Error*>(c->err)->jump, 1); };
  error.base.emit_message = [](j_common_ptr, int) {};
  // Static, so that longjmp skips no destructor.
  static std::vector<jpeg_scan_info> scans;
  static Data result;
  // Not jpeg_mem_dest: its buffer can't be released after an error.
  jpeg_destination_mgr destination{};
  destination.init_destination = [](j_compress_ptr c) {
    result.resize(1 << 16);
    c->dest->next_output_byte = result.data();
    c->dest->free_in_buffer = result.size();
  };
  destination.empty_output_buffer = [](j_compress_ptr c) -> boolean {
    const size_t old_size = result.size();
    result.resize(2 * old_size);
    c->dest->next_output_byte = result.data() + old_size;
    c->dest->free_in_buffer = old_size;
    return TRUE;
  };
  destination.term_destination = [](j_compress_ptr c) { result.resize(result.size() - c->dest->free_in_buffer); };
  if (setjmp(error.jump) == 0) {
    jpeg_create_decompress(&source);
    jpeg_create_compress(&target);
    jpeg_mem_src(&source, file.data(), file.size());
    jpeg_read_header(&source, TRUE);
    jvirt_barray_ptr* coefficients = jpeg_read_coefficients(&source);
    jpeg_copy_critical_parameters(&source, &target);
    int blocks = 0;
    for (int c = 0; c < target.num_components; c++)
      blocks += target.comp_info[c].h_samp_factor * target.comp_info[c].v_samp_factor;
    // A scan of several components has at most 10 blocks in an MCU (B.2.3).
    scans = RandomScans(target.num_components, target.num_components == 1 || blocks <= 10, random);
    target.scan_info = scans.data();
    target.num_scans = static_cast<int>(scans.size());
    // In MCUs; 0: no restart markers.
    target.restart_interval = random->below(3) ? 0 : static_cast<unsigned>(1 + random->below(20));
    target.dest = &destination;
    jpeg_write_coefficients(&target, coefficients);
    jpeg_finish_compress(&target);
  } else {
    result.clear();
  }
  jpeg_destroy_compress(&target);
  jpeg_destroy_decompress(&source);
  return result;
}

}  // namespace jaxdali

#endif  // JAXDALI_FFI_FUZZ_PROGRESSIVE_WRITER_H_
