// Windows of images: the part of each image that is read or kept, which operators compute for a whole batch before a
// program runs.
#ifndef JAXDALI_FFI_HOST_WINDOWS_H_
#define JAXDALI_FFI_HOST_WINDOWS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "ffi/cpu_codecs/image_header.h"

namespace jaxdali {

// Random windows of n images as DALI chooses them, see random_windows in random_windows.py.
//   u: [n, 2 + 2 * attempts], uniform in [0, 1): the position (y, x), the attempts' areas, their aspect ratios
//   extents: [n, 2], height and width of the images
//   area, aspect_ratio: ranges of the share of the image's area, and of width by height
//   start, size: [n, 2], the windows
void RandomWindows(const double* u, int64_t n, int attempts, const int64_t* extents, std::array<double, 2> area,
                   std::array<double, 2> aspect_ratio, double* start, double* size);

// Height and width of the images after their orientation is applied, which may exchange the two: [n, 2]; 1 x 1 where a
// row has no image.
void UprightExtents(const ImageInfo* info, int64_t n, bool adjust_orientation, int64_t* extents);

// Sets the region of the stored raster that each window of an upright image corresponds to. A row whose window is empty
// or reaches outside its image gets the status kOutOfBounds; a row without an image does not change.
//   start, size: [n, 2], whole numbers
// Returns the rows that got the status.
std::vector<int> SetRegions(ImageInfo* info, int64_t n, bool adjust_orientation, const double* start,
                            const double* size);

// Shapes [n, 3] of the upright images that the regions become. channels: 0 means those of each file.
void RegionShapes(const ImageInfo* info, int64_t n, bool adjust_orientation, int channels, int64_t* shapes);

// Finds the windows of samples that reach outside. All arrays are [n, ndim].
//   trim: such windows are cut to the sample
// Returns their rows, unless they are cut.
std::vector<int> BoundWindows(const int64_t* shapes, int64_t n, int64_t ndim, bool trim, int64_t* start,
                              int64_t* extent);

// Mirrors an axis of the windows of some samples. All arrays are [n, ndim], but is_mirrored: [n].
void MirrorWindows(int64_t n, int64_t ndim, int64_t axis, const bool* is_mirrored, const int64_t* extent,
                   int64_t* start, int64_t* step);

}  // namespace jaxdali

#endif  // JAXDALI_FFI_HOST_WINDOWS_H_
