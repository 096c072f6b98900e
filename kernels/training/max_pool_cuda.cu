// SPDX-License-Identifier: Apache-2.0
#include "kernels/training/max_pool.h"

#include "kernels/core/launch.cuh"
#include "kernels/core/values.cuh"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kValues = 8;  // neighbouring channels of a thread, where memory allows it

/// The chosen places of kPack neighbouring channels.
template <int kPack>
struct alignas(kPack) Places {
  uint8_t place[kPack];
};

/// A block computes a row of y.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) max_pool_kernel(MaxPool pool, const T* x, T* y, uint8_t* chosen) {
  const int packs = pool.channels / kPack;
  const int image = static_cast<int>(blockIdx.x) / pool.out_height,
            row = static_cast<int>(blockIdx.x) % pool.out_height;
  const int top = row * pool.stride_h - pool.pad_top;
  for (int i = static_cast<int>(threadIdx.x); i < pool.out_width * packs; i += kThreads) {
    const int left = i / packs * pool.stride_w - pool.pad_left, channel = i % packs * kPack;
    float best[kPack];
    Pack<T, kPack> values;
    Places<kPack> places;
    bool first = true;
    for (int h = 0; h < pool.kernel_h; ++h) {
      const int at_h = top + h;
      if (at_h < 0 || at_h >= pool.height) continue;
      for (int w = 0; w < pool.kernel_w; ++w) {
        const int at_w = left + w;
        if (at_w < 0 || at_w >= pool.width) continue;
        const long from =
            ((static_cast<long>(image) * pool.height + at_h) * pool.width + at_w) * pool.channels + channel;
        const Pack<T, kPack> seen = load<kPack, true>(x + from, kPack);
#pragma unroll
        for (int c = 0; c < kPack; ++c) {
          const float value = widen(seen.value[c]);
          if (!first && !(value > best[c]) && value == value) continue;
          best[c] = value;
          values.value[c] = seen.value[c];
          places.place[c] = static_cast<uint8_t>(h * pool.kernel_w + w);
        }
        first = false;
      }
    }
    const long to = (static_cast<long>(blockIdx.x) * pool.out_width) * pool.channels + static_cast<long>(i) * kPack;
    store<kPack, true>(values, y + to, kPack);
    if (chosen != nullptr) *reinterpret_cast<Places<kPack>*>(chosen + to) = places;
  }
}

/// A block computes a row of dx.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    max_pool_backward_kernel(MaxPool pool, const T* dy, const uint8_t* chosen, T* dx) {
  const int packs = pool.channels / kPack;
  const int image = static_cast<int>(blockIdx.x) / pool.height, row = static_cast<int>(blockIdx.x) % pool.height;
  for (int i = static_cast<int>(threadIdx.x); i < pool.width * packs; i += kThreads) {
    const int column = i / packs, channel = i % packs * kPack;
    float sum[kPack] = {};
    for (int h = pool.kernel_h - 1; h >= 0; --h) {
      const int below = row + pool.pad_top - h, from_h = below / pool.stride_h;
      if (below < 0 || below % pool.stride_h != 0 || from_h >= pool.out_height) continue;
      for (int w = pool.kernel_w - 1; w >= 0; --w) {
        const int right = column + pool.pad_left - w, from_w = right / pool.stride_w;
        if (right < 0 || right % pool.stride_w != 0 || from_w >= pool.out_width) continue;
        const long from =
            ((static_cast<long>(image) * pool.out_height + from_h) * pool.out_width + from_w) * pool.channels + channel;
        const Pack<T, kPack> gradients = load<kPack, true>(dy + from, kPack);
        const Places<kPack> places = *reinterpret_cast<const Places<kPack>*>(chosen + from);
#pragma unroll
        for (int c = 0; c < kPack; ++c)
          if (places.place[c] == h * pool.kernel_w + w) sum[c] += widen(gradients.value[c]);
      }
    }
    Pack<T, kPack> result;
#pragma unroll
    for (int c = 0; c < kPack; ++c) result.value[c] = narrow<T>(sum[c]);
    const long to = (static_cast<long>(blockIdx.x) * pool.width) * pool.channels + static_cast<long>(i) * kPack;
    store<kPack, true>(result, dx + to, kPack);
  }
}

/// Returns whether a thread can take kValues channels.
bool is_wide(const MaxPool& pool, const void* in, const void* out, const uint8_t* chosen) {
  return pool.channels % kValues == 0 && is_aligned(in) && is_aligned(out) && is_aligned(chosen);
}

}  // namespace

void cuda_max_pool(const MaxPool& pool, const void* x, void* y, uint8_t* chosen, CudaStream stream) {
  with_pack<kValues>(pool.type, is_wide(pool, x, y, chosen), [&](auto type, auto pack) {
    using T = decltype(type);
    max_pool_kernel<T, pack()><<<static_cast<unsigned>(pool.images) * pool.out_height, kThreads, 0, stream>>>(
        pool, static_cast<const T*>(x), static_cast<T*>(y), chosen);
  });
  check_launch("max_pool");
}

void cuda_max_pool_backward(const MaxPool& pool, const void* dy, const uint8_t* chosen, void* dx, CudaStream stream) {
  with_pack<kValues>(pool.type, is_wide(pool, dy, dx, chosen), [&](auto type, auto pack) {
    using T = decltype(type);
    max_pool_backward_kernel<T, pack()><<<static_cast<unsigned>(pool.images) * pool.height, kThreads, 0, stream>>>(
        pool, static_cast<const T*>(dy), chosen, static_cast<T*>(dx));
  });
  check_launch("max_pool_backward");
}

}  // namespace octet::kernels
