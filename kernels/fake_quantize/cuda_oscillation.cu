#include "kernels/cuda_launch.h"
#include "kernels/fake_quantize/cuda_oscillation.h"
#include "kernels/fake_quantize/cuda_weight_table.cuh"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;

/// One block a channel.
__global__ void __launch_bounds__(kThreads)
    freeze_oscillating_kernel(const __grid_constant__ Table<OscillatingWeights, OscillationRules> table) {
  if (*table.rules.skip != 0.0f) return;
  const int t = table.tensor_of_block(static_cast<int>(blockIdx.x));
  const OscillatingWeights& weights = table.tensor[t];
  const int channel = static_cast<int>(blockIdx.x) - table.first_block[t];
  const float scale = weights.scale[channel], threshold = *table.rules.threshold;
  const long first = static_cast<long>(channel) * weights.per_channel;
  for (int i = static_cast<int>(threadIdx.x); i < weights.per_channel; i += kThreads)
    follow_oscillation(weights, first + i, scale, threshold);
}

}  // namespace

void cuda_freeze_oscillating(const OscillationRules& rules, const OscillatingWeights* weights, int count,
                             CudaStream stream) {
  const auto channels_of = [](const OscillatingWeights& tensor) { return tensor.channels; };
  for_each_table(rules, weights, count, channels_of,
                 [&](const Table<OscillatingWeights, OscillationRules>& table, int blocks) {
                   freeze_oscillating_kernel<<<blocks, kThreads, 0, stream>>>(table);
                   check_launch("freeze_oscillating");
                 });
}

}  // namespace octet::kernels
