// SPDX-License-Identifier: Apache-2.0
#include "src/data/transform.h"

#include <algorithm>
#include <cmath>

namespace octet {

ResizeFilter triangle_filter(int inputs, int outputs) {
  const double scale = static_cast<double>(inputs) / outputs, stretch = std::max(scale, 1.0);
  ResizeFilter filter;
  filter.taps = static_cast<int>(std::ceil(stretch)) * 2 + 1;
  filter.first.resize(outputs);
  filter.count.resize(outputs);
  filter.weights.resize(static_cast<size_t>(outputs) * filter.taps);
  std::vector<double> exact(filter.taps);
  for (int i = 0; i < outputs; ++i) {
    const double center = (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(center - stretch + 0.5));
    const int end = std::min(inputs, static_cast<int>(center + stretch + 0.5));
    double sum = 0;
    for (int k = 0; k < end - first; ++k) {
      exact[k] = std::max(0.0, 1.0 - std::abs((first + k - center + 0.5) / stretch));
      sum += exact[k];
    }
    filter.first[i] = first;
    filter.count[i] = end - first;
    for (int k = 0; k < end - first; ++k) {
      filter.weights[static_cast<size_t>(i) * filter.taps + k] =
          static_cast<int32_t>(exact[k] / sum * (1 << kFilterBits) + 0.5);
    }
  }
  return filter;
}

namespace {

uint8_t to_byte(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kFilterBits, 0, 255)); }

template <int kChannels>
void resize_row(const uint8_t* input, const ResizeFilter& filter, uint8_t* output) {
  for (size_t x = 0; x < filter.outputs(); ++x) {
    const uint8_t* source = input + static_cast<size_t>(filter.first[x]) * kChannels;
    const int32_t* weights = &filter.weights[x * filter.taps];
    int32_t sums[kChannels];
    std::fill_n(sums, kChannels, 1 << (kFilterBits - 1));
    for (int k = 0; k < filter.count[x]; ++k) {
      for (int c = 0; c < kChannels; ++c) sums[c] += weights[k] * source[k * kChannels + c];
    }
    for (int c = 0; c < kChannels; ++c) output[x * kChannels + c] = to_byte(sums[c]);
  }
}

/// Resizes the width only.
Image resize_columns(const ImageView& input, int width) {
  Image output{input.height, width, input.channels, {}};
  const size_t stride = static_cast<size_t>(width) * input.channels;
  output.pixels.resize(stride * input.height);
  const ResizeFilter filter = triangle_filter(input.width, width);
  for (int y = 0; y < input.height; ++y) {
    const uint8_t* source = input.pixels + y * input.stride;
    uint8_t* target = output.pixels.data() + y * stride;
    input.channels == 1 ? resize_row<1>(source, filter, target) : resize_row<3>(source, filter, target);
  }
  return output;
}

/// Resizes the height only, a row at a time, which the compiler vectorizes.
Image resize_rows(const ImageView& input, int height) {
  Image output{height, input.width, input.channels, {}};
  const size_t stride = static_cast<size_t>(input.width) * input.channels;
  output.pixels.resize(stride * height);
  const ResizeFilter filter = triangle_filter(input.height, height);
  std::vector<int32_t> sums(stride);
  for (int y = 0; y < height; ++y) {
    std::fill(sums.begin(), sums.end(), 1 << (kFilterBits - 1));
    for (int k = 0; k < filter.count[y]; ++k) {
      const uint8_t* source = input.pixels + (filter.first[y] + k) * input.stride;
      const int32_t weight = filter.weights[static_cast<size_t>(y) * filter.taps + k];
      for (size_t i = 0; i < stride; ++i) sums[i] += weight * source[i];
    }
    uint8_t* target = output.pixels.data() + y * stride;
    for (size_t i = 0; i < stride; ++i) target[i] = to_byte(sums[i]);
  }
  return output;
}

}  // namespace

ImageView view(const Image& image, const Rectangle& r) {
  const size_t stride = static_cast<size_t>(image.width) * image.channels;
  return {image.pixels.data() + r.top * stride + static_cast<size_t>(r.left) * image.channels, r.height, r.width,
          image.channels, stride};
}

ImageView view(const Image& image) { return view(image, {0, 0, image.height, image.width}); }

Image resize(const ImageView& input, int height, int width) {
  // An unchanged side keeps its pixels: the triangle filter of scale one is the identity.
  if (height == input.height) return resize_columns(input, width);
  if (width == input.width) return resize_rows(input, height);
  return resize_rows(view(resize_columns(input, width)), height);
}

Image resize_nearest(const ImageView& input, int height, int width) {
  const auto channels = static_cast<size_t>(input.channels);
  const auto nearest = [](int to, int from_size, int to_size) {
    return static_cast<size_t>((2L * to + 1) * from_size / (2L * to_size));
  };
  Image output{height, width, input.channels, std::vector<uint8_t>(static_cast<size_t>(height) * width * channels)};
  uint8_t* out = output.pixels.data();
  for (int y = 0; y < height; ++y) {
    const uint8_t* row = input.pixels + nearest(y, input.height, height) * input.stride;
    for (int x = 0; x < width; ++x, out += channels)
      std::copy_n(row + nearest(x, input.width, width) * channels, channels, out);
  }
  return output;
}

Image resize(const ImageView& input, int height, int width, const Transform& transform) {
  return transform.classes ? resize_nearest(input, height, width) : resize(input, height, width);
}

}  // namespace octet
