// SPDX-License-Identifier: Apache-2.0
// A block takes some pixels of one image; its threads are spread over columns of eight channels and over pixels, as in
// batch_norm_rows.cuh.
#include "kernels/training/excite.h"

#include <algorithm>

#include "kernels/training/norm_quantize.cuh"

namespace octet::kernels {

using namespace batch_norm;
using namespace norm_quantize;

namespace {

constexpr int kLeastRows = 8;  // of a thread, where an image has several parts
constexpr int kMostParts = 32;
constexpr double kFullEnough = 0.9;  // share of the last wave's blocks at which more parts are not worth it

/// How the pixels of each image are divided.
struct ImageParts {
  int count, pixels;  ///< parts of an image, and pixels of a part
};

/// Returns the fewest parts whose blocks fill almost all of their waves, or those that fill most.
ImageParts parts_of_image(const ImageChannels& shape) {
  const int columns = shape.channels / kValues, lanes = kThreads / std::min(columns, kColumns);
  const long of_part = shape.images * blocks_for(columns, kColumns);
  const int most = std::clamp(shape.pixels / (lanes * kLeastRows), 1, kMostParts);
  const auto full = [&](int count) {
    const long blocks = of_part * count, waves = (blocks + kWave - 1) / kWave;
    return static_cast<double>(blocks) / static_cast<double>(waves * kWave);
  };
  int best = 1;
  for (int count = 1; count <= most && full(best) < kFullEnough; ++count)
    if (full(count) > full(best)) best = count;
  const int pixels = (shape.pixels + best - 1) / best;
  return {(shape.pixels + pixels - 1) / pixels, pixels};
}

dim3 blocks_of(const ImageChannels& shape, const ImageParts& parts) {
  return {static_cast<unsigned>(shape.images * parts.count), blocks_for(shape.channels / kValues, kColumns)};
}

/// A thread's column of the rows of an image's part.
struct ImagePlace : Place<kValues> {
  long image;

  __device__ ImagePlace(const ImageChannels& shape, const ImageParts& parts)
      : Place<kValues>({nullptr, shape.images * shape.pixels, shape.channels, shape.type}, 0, 1),
        image(blockIdx.x / parts.count) {
    const int first = static_cast<int>(blockIdx.x % parts.count) * parts.pixels;
    length = min(parts.pixels, shape.pixels - first);
    begin = image * shape.pixels + first;
    end = begin + length;
    row = lane < lanes ? begin + lane : end;
  }
  /// Returns where the thread's channels of the image are in [images, channels].
  __device__ long at_image() const { return (image * columns + column) * kValues; }

  /// Calls take.operator()<rows>(first row) for all rows of the thread, kRows at a time.
  template <int kRows, class Take>
  __device__ void for_rows(const Take& take) const {
    long at = row;
    for (; at + (kRows - 1) * lanes < end; at += kRows * lanes) take(std::integral_constant<int, kRows>(), at);
    for (; at < end; at += lanes) take(std::integral_constant<int, 1>(), at);
  }
};

/// Writes the sums over each image's parts, times `factor`, to y [images, channels].
template <class T>
__global__ void __launch_bounds__(kThreads)
    join_image_parts_kernel(const float* parts, ImageChannels shape, int count, float factor, T* y) {
  const long at = static_cast<long>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= shape.images * shape.channels) return;
  const long image = at / shape.channels, channel = at % shape.channels;
  float total = 0;
  for (int p = 0; p < count; ++p) total += parts[(image * count + p) * shape.channels + channel];
  y[at] = narrow<T>(total * factor);
}

template <class T>
void join_image_parts(const float* parts, const ImageChannels& shape, int count, float factor, void* y,
                      CudaStream stream) {
  join_image_parts_kernel<<<blocks_for(shape.images * shape.channels, kThreads), kThreads, 0, stream>>>(
      parts, shape, count, factor, static_cast<T*>(y));
  check_launch("excite's sums");
}

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    image_sums_kernel(ImageChannels shape, ImageParts parts_of, const T* x, float* parts) {
  const ImagePlace place(shape, parts_of);
  float sums[1][kValues] = {};
  place.for_rows<4>([&](auto rows, long first) {
    Pack<T, kValues> packs[rows()];
#pragma unroll
    for (int r = 0; r < rows(); ++r) packs[r] = load<kValues, true>(x + place.at(first + r * place.lanes), kValues);
#pragma unroll
    for (int r = 0; r < rows(); ++r) {
      float values[kValues];
      widen_to(values, packs[r]);
#pragma unroll
      for (int i = 0; i < kValues; ++i) sums[0][i] += values[i];
    }
  });
  write_sums_of_part(place, sums, shape.channels, parts);
}

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    excite_quantize_kernel(ExciteQuantization work, ImageParts parts_of) {
  const ImagePlace place(work.shape, parts_of);
  if (place.lane >= place.lanes) return;
  const Rounder rounder(qparams_of(work), work.activation);
  float factor[kValues];
  widen_to(factor, load<kValues, true>(static_cast<const T*>(work.factor) + place.at_image(), kValues));
  place.for_rows<2>([&](auto rows, long first) {
    Pack<T, kValues> x[rows()];
#pragma unroll
    for (int r = 0; r < rows(); ++r)
      x[r] = load<kValues, true>(static_cast<const T*>(work.x) + place.at(first + r * place.lanes), kValues);
#pragma unroll
    for (int r = 0; r < rows(); ++r) {
      const long at = place.at(first + r * place.lanes);
      float product[kValues];
      widen_to(product, x[r]);
#pragma unroll
      for (int i = 0; i < kValues; ++i) product[i] *= factor[i];
      widen_to(product, narrowed<T>(product));
      const unsigned bits = rounder.round(product);
      store<kValues, true>(narrowed<T>(product), static_cast<T*>(work.y) + at, kValues);
      if (work.bits != nullptr) work.bits[at / kValues] = static_cast<uint8_t>(bits);
    }
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    excite_gradient_kernel(ExciteGradient work, ImageParts parts_of) {
  const ImagePlace place(work.shape, parts_of);
  float factor[kValues] = {}, sums[1][kValues] = {};
  if (place.lane < place.lanes)
    widen_to(factor, load<kValues, true>(static_cast<const T*>(work.factor) + place.at_image(), kValues));
  place.for_rows<2>([&](auto rows, long first) {
    Pack<T, kValues> x[rows()], dy[rows()];
    unsigned bits[rows()];
#pragma unroll
    for (int r = 0; r < rows(); ++r) {
      const long at = place.at(first + r * place.lanes);
      dy[r] = load_last(static_cast<const T*>(work.dy) + at);
      x[r] = load<kValues, true>(static_cast<const T*>(work.x) + at, kValues);
      bits[r] = work.bits[at / kValues];
    }
#pragma unroll
    for (int r = 0; r < rows(); ++r) {
      float gradient[kValues], value[kValues];
      widen_to(gradient, dy[r]);
      widen_to(value, x[r]);
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        gradient[i] = (bits[r] >> i & 1) != 0 ? gradient[i] : 0.0f;
        sums[0][i] = fmaf(gradient[i], value[i], sums[0][i]);
        gradient[i] *= factor[i];
      }
      store<kValues, true>(narrowed<T>(gradient), static_cast<T*>(work.dx) + place.at(first + r * place.lanes),
                           kValues);
    }
  });
  write_sums_of_part(place, sums, work.shape.channels, work.parts);
}

}  // namespace

long image_parts(const ImageChannels& shape) { return shape.images * parts_of_image(shape).count; }

void cuda_image_means(const ImageChannels& shape, const void* x, float* parts, void* y, CudaStream stream) {
  if (shape.images == 0) return;
  const ImageParts parts_of = parts_of_image(shape);
  with_half(shape.type, [&](auto type) {
    using T = decltype(type);
    image_sums_kernel<T>
        <<<blocks_of(shape, parts_of), kThreads, 0, stream>>>(shape, parts_of, static_cast<const T*>(x), parts);
    check_launch("image_means");
    join_image_parts<T>(parts, shape, parts_of.count, 1.0f / static_cast<float>(shape.pixels), y, stream);
  });
}

void cuda_excite_quantize(const ExciteQuantization& work, CudaStream stream) {
  if (work.shape.images == 0) return;
  const ImageParts parts_of = parts_of_image(work.shape);
  with_half(work.shape.type, [&](auto type) {
    excite_quantize_kernel<decltype(type)><<<blocks_of(work.shape, parts_of), kThreads, 0, stream>>>(work, parts_of);
  });
  check_launch("excite_quantize");
}

void cuda_excite_gradient(const ExciteGradient& work, CudaStream stream) {
  if (work.shape.images == 0) return;
  const ImageParts parts_of = parts_of_image(work.shape);
  with_half(work.shape.type, [&](auto type) {
    using T = decltype(type);
    excite_gradient_kernel<T><<<blocks_of(work.shape, parts_of), kThreads, 0, stream>>>(work, parts_of);
    check_launch("excite_gradient");
    join_image_parts<T>(work.parts, work.shape, parts_of.count, 1, work.dfactor, stream);
  });
}

}  // namespace octet::kernels
