// Orientations 1 to 8 are those of EXIF (JEITA CP-3451, tag 0x0112). From 5 on, they exchange rows and columns.
#include "ffi/host/windows.h"

#include <algorithm>
#include <cmath>

namespace jaxdali {

namespace {

// A row of a failed or missing image has no size.
bool HasImage(const ImageInfo& row) { return row.status == static_cast<int32_t>(kOk) && row.height > 0; }

bool SwapsAxes(const ImageInfo& row, bool adjust_orientation) { return adjust_orientation && row.orientation >= 5; }

}  // namespace

// Chooses random windows of n images as DALI does: attempts with a random area and aspect ratio, then a fallback.
// `extents`, `start`, `size`: [n, 2], y and x. `area`: the range of the share of the image's area. `aspect_ratio`: the
// range of width by height. `u`: uniform random numbers in [0, 1), a row for each image: the position (y, x), the areas
// of all attempts, then their aspect ratios.
void RandomWindows(const double* u, int64_t n, int attempts, const int64_t* extents, std::array<double, 2> area,
                   std::array<double, 2> aspect_ratio, double* start, double* size) {
  // DALI's precision: whole images of just the allowed ratio depend on it.
  const auto min_ratio = static_cast<float>(aspect_ratio[0]), max_ratio = static_cast<float>(aspect_ratio[1]);
  const double log_min = std::log(aspect_ratio[0]), log_max = std::log(aspect_ratio[1]);
  for (int64_t i = 0; i < n; i++, u += 2 + 2 * attempts, extents += 2, start += 2, size += 2) {
    const auto height = static_cast<double>(extents[0]), width = static_cast<double>(extents[1]);
    const double image_area = height * width;
    // The fallback when no attempt fits, or none could be large enough: the largest window of the allowed aspect ratio
    // nearest to the image's, shrunk to the largest allowed area.
    const float max_height = std::floor(static_cast<float>(extents[1]) * (1.0f / min_ratio));
    const float max_width = std::floor(static_cast<float>(extents[0]) * max_ratio);
    size[0] = std::max(std::min(static_cast<double>(max_height), height), 1.0);
    size[1] = std::max(std::min(static_cast<double>(max_width), width), 1.0);
    const double max_area = size[0] * size[1];
    const bool none_fits = max_area < area[0] * height * width;
    const double shrink = std::sqrt(std::min(area[1] * height * width / max_area, 1.0));
    for (int k = 0; k < 2; k++) size[k] = std::max(std::floor(size[k] * shrink), 1.0);
    // The area is uniform, the aspect ratio log-uniform. An attempt is accepted if it fits after rounding.
    for (int k = 0; k < attempts && !none_fits; k++) {
      const double target = (area[0] + (area[1] - area[0]) * u[2 + k]) * image_area;
      const double ratio = std::exp(log_min + (log_max - log_min) * u[2 + attempts + k]);
      const double h = std::max(std::floor(std::sqrt(target / ratio) + 0.5), 1.0);
      const double w = std::max(std::floor(std::sqrt(target * ratio) + 0.5), 1.0);
      const auto actual_ratio = static_cast<float>(w / h);
      if (h <= height && w <= width && actual_ratio >= min_ratio && actual_ratio <= max_ratio) {
        size[0] = h;
        size[1] = w;
        break;
      }
    }
    // All positions at which the window fits are equally likely.
    start[0] = std::floor(u[0] * (height - size[0] + 1));
    start[1] = std::floor(u[1] * (width - size[1] + 1));
  }
}

// Height and width of the upright images, [n, 2]; 1 x 1 where a row has no image.
void UprightExtents(const ImageInfo* info, int64_t n, bool adjust_orientation, int64_t* extents) {
  for (int64_t i = 0; i < n; i++) {
    const bool has_image = HasImage(info[i]), swaps_axes = SwapsAxes(info[i], adjust_orientation);
    extents[2 * i] = !has_image ? 1 : swaps_axes ? info[i].width : info[i].height;
    extents[2 * i + 1] = !has_image ? 1 : swaps_axes ? info[i].height : info[i].width;
  }
}

// Shapes [n, 3] of the upright images that the regions become. channels: 0 means those of each file.
void RegionShapes(const ImageInfo* info, int64_t n, bool adjust_orientation, int channels, int64_t* shapes) {
  for (int64_t i = 0; i < n; i++, shapes += 3) {
    const ImageInfo& row = info[i];
    const bool swaps_axes = SwapsAxes(row, adjust_orientation);
    shapes[0] = swaps_axes ? row.region_w : row.region_h;
    shapes[1] = swaps_axes ? row.region_h : row.region_w;
    shapes[2] = channels != 0 ? channels : row.channels;
  }
}

// Sets the regions of stored rasters that windows of upright images correspond to. Returns the rows whose window is
// empty or reaches outside.
std::vector<int> SetRegions(ImageInfo* info, int64_t n, bool adjust_orientation, const double* start,
                            const double* size) {
  std::vector<int> outside;
  for (int64_t i = 0; i < n; i++) {
    ImageInfo& row = info[i];
    if (!HasImage(row)) continue;
    const bool swaps_axes = SwapsAxes(row, adjust_orientation);
    const int32_t extents[] = {swaps_axes ? row.width : row.height, swaps_axes ? row.height : row.width};
    bool is_inside = true;  // also false for NaN
    for (int k = 0; k < 2; k++) {
      const double first = start[2 * i + k], count = size[2 * i + k];
      is_inside = is_inside && first >= 0 && count >= 1 && first + count <= extents[k];
    }
    if (!is_inside) {
      row.status = static_cast<int32_t>(kOutOfBounds);
      outside.push_back(static_cast<int>(i));
      continue;
    }
    const int y = swaps_axes ? 1 : 0;  // the axis of the window that is the raster's first
    // The window of the upright image, with its axes exchanged if the orientation does that. Flips follow below.
    row.region_y = static_cast<int32_t>(start[2 * i + y]);
    row.region_x = static_cast<int32_t>(start[2 * i + 1 - y]);
    row.region_h = static_cast<int32_t>(size[2 * i + y]);
    row.region_w = static_cast<int32_t>(size[2 * i + 1 - y]);
    if (!adjust_orientation) continue;
    const int32_t orientation = row.orientation;
    // These orientations reverse the raster's rows; the next ones its columns.
    if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7)
      row.region_y = row.height - row.region_y - row.region_h;
    if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8)
      row.region_x = row.width - row.region_x - row.region_w;
  }
  return outside;
}

// Cuts windows to their samples (`trim`), or returns the numbers of those that reach outside.
std::vector<int> BoundWindows(const int64_t* shapes, int64_t n, int64_t ndim, bool trim, int64_t* start,
                              int64_t* extent) {
  std::vector<int> outside;
  for (int64_t i = 0; i < n; i++, shapes += ndim, start += ndim, extent += ndim) {
    bool is_inside = true;
    for (int64_t d = 0; d < ndim; d++) is_inside = is_inside && start[d] >= 0 && start[d] + extent[d] <= shapes[d];
    if (is_inside) continue;
    if (!trim) {
      outside.push_back(static_cast<int>(i));
      continue;
    }
    for (int64_t d = 0; d < ndim; d++) {
      // A window that lies wholly outside becomes empty.
      const int64_t stop = std::clamp<int64_t>(start[d] + extent[d], 0, shapes[d]);
      start[d] = std::clamp<int64_t>(start[d], 0, shapes[d]);
      extent[d] = std::max<int64_t>(stop - start[d], 0);
    }
  }
  return outside;
}

// Mirrors an axis of the windows of some samples.
void MirrorWindows(int64_t n, int64_t ndim, int64_t axis, const bool* is_mirrored, const int64_t* extent,
                   int64_t* start, int64_t* step) {
  for (int64_t i = 0; i < n; i++) {
    const int64_t k = i * ndim + axis;
    if (!is_mirrored[i]) continue;
    // The last element becomes the first one, and the step turns around.
    start[k] += (extent[k] - 1) * step[k];
    step[k] = -step[k];
  }
}

}  // namespace jaxdali
