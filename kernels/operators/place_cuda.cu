// SPDX-License-Identifier: Apache-2.0
#include "kernels/core/launch.cuh"
#include "kernels/operators/place.h"
#include "kernels/operators/placed_pixel.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 128;

/// A thread makes one pixel; a block a part of a row, whose tiles and weights its threads share in the cache.
template <int kChannels>
__global__ void __launch_bounds__(kThreads) place_kernel(PlaceShape shape, PlaceBatch batch) {
  const int x = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (x < shape.width)
    write_placed_pixel<kChannels>(shape, batch, static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y), x);
}

}  // namespace

void cuda_place(const PlaceShape& shape, const PlaceBatch& batch, CudaStream stream) {
  const dim3 blocks(blocks_for(shape.width, kThreads), static_cast<unsigned>(shape.height),
                    static_cast<unsigned>(shape.batch));
  if (shape.channels == 1)
    place_kernel<1><<<blocks, kThreads, 0, stream>>>(shape, batch);
  else
    place_kernel<3><<<blocks, kThreads, 0, stream>>>(shape, batch);
  check_launch("place");
}

}  // namespace octet::kernels
