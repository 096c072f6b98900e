#include "kernels/augment/cuda_augment.h"
#include "kernels/cuda_launch.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;

/// One thread a pixel of the batch.
__global__ void augment_kernel(AugmentShape shape, AugmentBatch batch) {
  const long pixel = static_cast<long>(blockIdx.x) * kThreads + threadIdx.x;
  const long area = static_cast<long>(shape.height) * shape.width;
  if (pixel >= shape.batch * area) return;
  const int n = static_cast<int>(pixel / area), place = static_cast<int>(pixel % area);
  const int y = place / shape.width, x = place % shape.width;
  const AugmentedPicture picture = batch.chosen[n];
  if (place == 0) batch.labels[n] = picture.label;

  const int row = y + picture.top, column = (picture.flip ? shape.width - 1 - x : x) + picture.left;
  const bool inside = row >= 0 && row < shape.picture_height && column >= 0 && column < shape.picture_width;
  const bool cut =
      y >= picture.cut_y && y < picture.cut_y + shape.cutout && x >= picture.cut_x && x < picture.cut_x + shape.cutout;
  const uint8_t* in =
      batch.pictures + ((picture.index * shape.picture_height + row) * shape.picture_width + column) * shape.channels;
  float* out = batch.images + pixel * shape.channels;
  for (int c = 0; c < shape.channels; ++c) {
    const uint8_t value = cut ? shape.fill[c] : inside ? in[c] : 0;
    out[c] = __ldg(batch.tables + c * 256 + value);
  }
}

}  // namespace

void cuda_augment(const AugmentShape& shape, const AugmentBatch& batch, CudaStream stream) {
  const long pixels = static_cast<long>(shape.batch) * shape.height * shape.width;
  augment_kernel<<<blocks_for(pixels, kThreads), kThreads, 0, stream>>>(shape, batch);
  check_launch("augment");
}

}  // namespace octet::kernels
