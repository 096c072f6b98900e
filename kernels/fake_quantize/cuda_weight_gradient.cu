#include "kernels/cuda_block_sum.cuh"
#include "kernels/cuda_launch.h"
#include "kernels/fake_quantize/cuda_quantize_weights.h"
#include "kernels/fake_quantize/cuda_weight_table.cuh"
#include "kernels/fake_quantize/learned_scale.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;

/// dy/ds of a weight whose code, rounded, is that.
__device__ float slope_of(float weight, float rounded, const WeightCode& code) {
  if (!(rounded >= code.lowest)) return code.lowest;  // NaN, too
  if (rounded > code.highest) return code.highest;
  return -fmaf(-rounded, code.quotient.scale, weight) / code.quotient.scale;
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
  const bool learns = table.rules.dscales != nullptr;
  const float gain = has_gain ? tensor.gain[channel] : 1.0f;
  const WeightCode code(has_gain || clips ? tensor.scale[channel] : 1.0f, tensor.codes);
  float dgain = 0, dscale = 0;
  for (int i = static_cast<int>(threadIdx.x); i < tensor.per_channel; i += kThreads) {
    const float gradient = widen(dy[i]);
    bool passes = true;
    if (has_gain || clips) {
      const float weight = tensor.weight[start + i], rounded = code.rounded(weight);
      passes = !clips || (rounded >= code.lowest && rounded <= code.highest);  // NaN does not
      dgain += gradient * code.real(weight);
      if (learns) dscale += gradient * gain * slope_of(weight, rounded, code);
    }
    dx[i] = passes ? gradient * gain : 0.0f;
  }
  if (has_gain) {
    dgain = block_sum<kThreads>(dgain);
    if (threadIdx.x == 0) tensor.dgain[channel] = dgain;
  }
  if (learns) {
    dscale = block_sum<kThreads>(dscale);
    const double factor = scale_gradient_factor(tensor.per_channel, tensor.codes.highest, 0);
    if (threadIdx.x == 0)
      table.rules.dscales[tensor.scale + channel - table.rules.scales] = static_cast<float>(dscale * factor);
  }
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
