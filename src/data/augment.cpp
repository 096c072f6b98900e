#include "src/data/augment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/common/error.h"

namespace octet {
namespace {

size_t row_bytes(const Transform& t) { return static_cast<size_t>(t.width) * t.channels; }

void check_channels(const Image& image, const Transform& t) {
  if (image.channels == t.channels && image.height > 0 && image.width > 0) return;
  throw data_error(fmt::format("picture of {}x{}x{}, but {} channels are wanted; see data.channels", image.height,
                               image.width, image.channels, t.channels));
}

/// Shorter side to `shorter`, the other in proportion, rounded down.
Image resize_shorter(const Image& image, int shorter) {
  constexpr int kLongest = 1 << 15;
  const bool upright = image.height >= image.width;
  const long low = upright ? image.width : image.height, high = upright ? image.height : image.width;
  const long longer = shorter * high / low;
  if (longer > kLongest) {
    throw data_error(fmt::format("picture of {}x{}: {} pixels long after data.resize {}; at most {}", image.height,
                                 image.width, longer, shorter, kLongest));
  }
  const int other = static_cast<int>(longer);
  return upright ? resize(view(image), other, shorter) : resize(view(image), shorter, other);
}

/// Copies the height x width pixels that start at (top, left) of the picture; zero outside it.
void copy_crop(const Image& image, int top, int left, const Transform& t, uint8_t* out) {
  const int first = std::clamp(-left, 0, t.width), end = std::clamp(image.width - left, first, t.width);
  for (int y = 0; y < t.height; ++y, out += row_bytes(t)) {
    const int source_y = y + top;
    if (source_y < 0 || source_y >= image.height || first == end) {
      std::memset(out, 0, row_bytes(t));
      continue;
    }
    const size_t start = (static_cast<size_t>(source_y) * image.width + (left + first)) * t.channels;
    std::memset(out, 0, static_cast<size_t>(first) * t.channels);
    std::memcpy(out + first * t.channels, &image.pixels[start], static_cast<size_t>(end - first) * t.channels);
    std::memset(out + end * t.channels, 0, static_cast<size_t>(t.width - end) * t.channels);
  }
}

/// Room for the crop's position on one axis; throws if the picture is too small.
int room(int side, int crop, int pad, const Image& image, const Transform& t) {
  const int slack = side + 2 * pad - crop;
  if (slack >= 0) return slack;
  throw data_error(fmt::format("picture of {}x{} is smaller than the crop of {}x{}; set data.resize", image.height,
                               image.width, t.height, t.width));
}

template <int kChannels>
void mirror(const Transform& t, uint8_t* out) {
  struct Pixel {
    uint8_t values[kChannels];
  };
  for (int y = 0; y < t.height; ++y, out += row_bytes(t)) {
    auto* row = reinterpret_cast<Pixel*>(out);
    std::reverse(row, row + t.width);
  }
}

/// A square with its centre anywhere, cut off at the borders.
void cut_out(const Transform& t, Random& random, uint8_t* out) {
  const int top = static_cast<int>(random.below(t.height)) - t.cutout / 2;
  const int left = static_cast<int>(random.below(t.width)) - t.cutout / 2;
  for (int y = std::max(top, 0); y < std::min(top + t.cutout, t.height); ++y) {
    for (int x = std::max(left, 0); x < std::min(left + t.cutout, t.width); ++x) {
      std::copy(t.fill.begin(), t.fill.end(), out + y * row_bytes(t) + static_cast<size_t>(x) * t.channels);
    }
  }
}

void random_crop(const Image& image, const Transform& t, Random& random, uint8_t* out) {
  const int rows = room(image.height, t.height, t.pad, image, t), columns = room(image.width, t.width, t.pad, image, t);
  const int top = static_cast<int>(random.below(rows + 1)) - t.pad;
  const int left = static_cast<int>(random.below(columns + 1)) - t.pad;
  copy_crop(image, top, left, t, out);
}

void centre_crop(const Image& image, const Transform& t, uint8_t* out) {
  const int rows = room(image.height, t.height, 0, image, t), columns = room(image.width, t.width, 0, image, t);
  copy_crop(image, rows / 2, columns / 2, t, out);
}

}  // namespace

void check_transform(const Transform& t) {
  if (t.height < 1 || t.width < 1) throw usage_error(fmt::format("batch pictures of {}x{}", t.height, t.width));
  if (t.channels != 1 && t.channels != 3) throw usage_error(fmt::format("{} channels; allowed: 1, 3", t.channels));
  if (t.pad < 0 || t.cutout < 0 || t.resize < 0) throw usage_error("pad, cutout and resize cannot be negative");
  if (t.cutout > 0 && t.fill.size() != static_cast<size_t>(t.channels)) {
    throw usage_error(fmt::format("cutout: fill has {} values for {} channels", t.fill.size(), t.channels));
  }
}

Rectangle random_part(const Image& image, double area_min, Random& random) {
  constexpr double kLowest = 3.0 / 4, kHighest = 4.0 / 3;
  constexpr int kTries = 10;
  const double area = static_cast<double>(image.height) * image.width;
  for (int i = 0; i < kTries; ++i) {
    const double wanted = area * random.uniform(area_min, 1);
    const double aspect = std::exp(random.uniform(std::log(kLowest), std::log(kHighest)));
    const int width = static_cast<int>(std::lround(std::sqrt(wanted * aspect)));
    const int height = static_cast<int>(std::lround(std::sqrt(wanted / aspect)));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    const int top = static_cast<int>(random.below(image.height - height + 1));
    const int left = static_cast<int>(random.below(image.width - width + 1));
    return {top, left, height, width};
  }
  // A very long picture: its middle, as near to the allowed aspects as possible.
  const int width = std::min(image.width, static_cast<int>(std::lround(image.height * kHighest)));
  const int height = std::min(image.height, static_cast<int>(std::lround(image.width / kLowest)));
  return {(image.height - height) / 2, (image.width - width) / 2, height, width};
}

void evaluation_pixels(const Image& image, const Transform& t, uint8_t* out) {
  check_channels(image, t);
  if (t.resize > 0) {
    centre_crop(resize_shorter(image, t.resize), t, out);
  } else {
    centre_crop(image, t, out);
  }
}

void training_pixels(const Image& image, const Transform& t, Random& random, uint8_t* out) {
  check_channels(image, t);
  if (t.random_resized_crop) {
    const Image part = resize(view(image, random_part(image, t.crop_area_min, random)), t.height, t.width);
    std::copy(part.pixels.begin(), part.pixels.end(), out);
  } else if (t.resize > 0) {
    random_crop(resize_shorter(image, t.resize), t, random, out);
  } else {
    random_crop(image, t, random, out);
  }
  if (t.flip && random.below(2) == 1) t.channels == 1 ? mirror<1>(t, out) : mirror<3>(t, out);
  if (t.cutout > 0) cut_out(t, random, out);
}

Image evaluation_image(const Image& image, const Transform& transform) {
  check_transform(transform);
  Image result{transform.height, transform.width, transform.channels, {}};
  result.pixels.resize(transform.height * row_bytes(transform));
  evaluation_pixels(image, transform, result.pixels.data());
  return result;
}

}  // namespace octet
