#include "kernels/cuda_launch.h"
#include "kernels/fake_quantize/cuda_quantize_weights.h"
#include "kernels/fake_quantize/cuda_weight_table.cuh"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;

/// Of all threads, in a fixed order, for thread 0.
__device__ float block_sum(float value) {
  __shared__ float of_warp[kThreads / 32];
  for (int other = 16; other > 0; other /= 2) value += __shfl_xor_sync(0xffffffff, value, other);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kThreads / 32; ++warp) value += of_warp[warp];
  }
  return value;
}

/// One block a channel.
template <class T>
__global__ void __launch_bounds__(kThreads)
    weights_backward_kernel(const __grid_constant__ Table<WeightGradient> table) {
  const int t = table.tensor_of_block(static_cast<int>(blockIdx.x));
  const WeightGradient& tensor = table.tensor[t];
  const int channel = static_cast<int>(blockIdx.x) - table.first_block[t];
  const long start = static_cast<long>(channel) * tensor.per_channel;
  const T* dy = static_cast<const T*>(tensor.dy) + start;
  float* dx = tensor.dx + start;
  const bool has_gain = tensor.gain != nullptr, clips = table.rules.rule != ScaleRule::reach;
  const float gain = has_gain ? tensor.gain[channel] : 1.0f;
  const WeightCode code(has_gain || clips ? tensor.scale[channel] : 1.0f, tensor.codes);
  float dgain = 0;
  for (int i = static_cast<int>(threadIdx.x); i < tensor.per_channel; i += kThreads) {
    const float gradient = widen(dy[i]);
    bool passes = true;
    if (has_gain || clips) {
      const float weight = tensor.weight[start + i], rounded = code.rounded(weight);
      passes = !clips || (rounded >= code.lowest && rounded <= code.highest);  // NaN does not
      dgain += gradient * code.real(weight);
    }
    dx[i] = passes ? gradient * gain : 0.0f;
  }
  if (!has_gain) return;
  dgain = block_sum(dgain);
  if (threadIdx.x == 0) tensor.dgain[channel] = dgain;
}

}  // namespace

void cuda_quantize_weights_backward(const WeightRules& rules, const WeightGradient* weights, int count,
                                    CudaStream stream) {
  const auto channels_of = [](const WeightGradient& tensor) { return tensor.channels; };
  for_each_table(rules, weights, count, channels_of, [&](const Table<WeightGradient>& table, int blocks) {
    with_type(rules.type,
              [&](auto type) { weights_backward_kernel<decltype(type)><<<blocks, kThreads, 0, stream>>>(table); });
    check_launch("quantize_weights_backward");
  });
}

}  // namespace octet::kernels
