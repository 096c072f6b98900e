// SPDX-License-Identifier: Apache-2.0
#include "kernels/core/launch.cuh"

#include "kernels/core/values.cuh"
#include "kernels/training/learned_range.h"
#include "kernels/training/weight_table.cuh"
#include "kernels/training/weights.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256, kThreadsOfTensor = 1024;
constexpr int kValues = 4;

/// The values that share one scale: those of one channel, or of all.
struct Row {
  const float* value;
  int length, per_channel;
  int window;  ///< WeightTensor::channels_last_window

  /// Returns value i in PyTorch's order.
  __device__ float in_pytorch_order(int i) const {
    if (window == 0) return value[i];
    const int within = i % per_channel;
    return value[i - within + within % window * (per_channel / window) + within / window];
  }
};

/// The shared memory of a block.
struct Shared {
  WeightReach reach[32];
  double error[ShrinkFactors::kMost];
  ShrinkFactors factors;
};

/// Returns the max magnitudes of the row, to every thread. NaN is left out; `damaged` becomes true for NaN and
/// infinity.
__device__ WeightReach reach_of(const Row& row, Shared& shared, bool& damaged) {
  WeightReach reach;
  float zero = 0;
  const auto take = [&](float value) {
    reach.below = fmaxf(reach.below, -value);
    reach.above = fmaxf(reach.above, value);
    zero = fmaf(value, 0.0f, zero);  // NaN for NaN and infinity
  };
  if (row.length % kValues == 0 && reinterpret_cast<uintptr_t>(row.value) % 16 == 0) {
    for (int i = threadIdx.x * kValues; i < row.length; i += blockDim.x * kValues) {
      const Pack<float, kValues> pack = load<kValues, true>(row.value + i, kValues);
      for (int j = 0; j < kValues; ++j) take(pack.value[j]);
    }
  } else {
    for (int i = threadIdx.x; i < row.length; i += blockDim.x) take(row.value[i]);
  }
  const auto join = [&](const WeightReach& other) {
    reach = {fmaxf(reach.below, other.below), fmaxf(reach.above, other.above)};
  };
  for (int other = 16; other > 0; other /= 2) {
    join({__shfl_xor_sync(0xffffffff, reach.below, other), __shfl_xor_sync(0xffffffff, reach.above, other)});
  }
  if (threadIdx.x % 32 == 0) shared.reach[threadIdx.x / 32] = reach;
  damaged = __syncthreads_or(zero != 0.0f) != 0;  // NaN != 0 is true
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) join(shared.reach[warp]);
  return reach;
}

/// Returns the same as squared_error() of fake_quantize.h, computed by kErrorLanes neighbouring threads.
__device__ double squared_error_of(const Row& row, float scale, const WeightCodes& codes) {
  const WeightCode code(scale, codes);
  const int lane = threadIdx.x % kErrorLanes;
  double sum = 0;
  for (int i = lane; i < row.length; i += kErrorLanes) {
    const float value = row.in_pytorch_order(i);
    const double error = static_cast<double>(code.real(value)) - value;
    sum += error * error;
  }
  const unsigned group = 0xffffu << (threadIdx.x % 32 / kErrorLanes * kErrorLanes);
  double total = 0;
  for (int i = 0; i < kErrorLanes; ++i) total += __shfl_sync(group, sum, i, kErrorLanes);
  return total;
}

/// Tries the factors in shared.factors, one for each group of threads; then every thread picks the same best one.
__device__ void try_factors(const Row& row, const WeightReach& reach, const WeightCodes& codes, Shared& shared,
                            double& best_factor, double& best_error) {
  const int group = threadIdx.x / kErrorLanes, groups = blockDim.x / kErrorLanes;
  for (int f = group; f < shared.factors.count; f += groups) {
    const double error = squared_error_of(row, shrunk_scale(reach, shared.factors.factor[f], codes), codes);
    if (threadIdx.x % kErrorLanes == 0) shared.error[f] = error;
  }
  __syncthreads();
  for (int f = 0; f < shared.factors.count; ++f) {
    if (shared.error[f] < best_error) {
      best_error = shared.error[f];
      best_factor = shared.factors.factor[f];
    }
  }
  __syncthreads();
}

/// Returns the scale of ScaleRule::least_squares.
__device__ float best_scale(const Row& row, const WeightReach& reach, const WeightCodes& codes, Shared& shared) {
  if (reach.below == 0 && reach.above == 0) return scale_of_reach(reach, codes);
  double best_factor = 1, best_error = INFINITY;
  if (threadIdx.x == 0) shared.factors = coarse_factors();
  __syncthreads();
  try_factors(row, reach, codes, shared, best_factor, best_error);
  if (threadIdx.x == 0) shared.factors = fine_factors(best_factor);
  __syncthreads();
  try_factors(row, reach, codes, shared, best_factor, best_error);
  return shrunk_scale(reach, best_factor, codes);
}

/// Writes the fake-quantized row times the gain. `gain` points to that of the row's first channel; null: 1.
template <class T>
__device__ void quantize_row(const Row& row, float scale, const WeightCodes& codes, const float* gain, T* y) {
  const WeightCode code(scale, codes);
  const bool one_channel = row.length == row.per_channel;
  const float first_gain = gain != nullptr ? *gain : 1.0f;
  const auto gain_at = [&](int i) { return one_channel || gain == nullptr ? first_gain : gain[i / row.per_channel]; };
  const bool wide = row.length % kValues == 0 && reinterpret_cast<uintptr_t>(row.value) % 16 == 0 &&
                    reinterpret_cast<uintptr_t>(y) % sizeof(Pack<T, kValues>) == 0;
  if (!wide) {
    for (int i = threadIdx.x; i < row.length; i += blockDim.x) y[i] = narrow<T>(code.real(row.value[i]) * gain_at(i));
    return;
  }
  for (int i = threadIdx.x * kValues; i < row.length; i += blockDim.x * kValues) {
    const Pack<float, kValues> in = load<kValues, true>(row.value + i, kValues);
    Pack<T, kValues> out;
    for (int j = 0; j < kValues; ++j) out.value[j] = narrow<T>(code.real(in.value[j]) * gain_at(i + j));
    store<kValues, true>(out, y + i, kValues);
  }
}

/// A block finds the scale of one row and quantizes it.
template <class T>
__global__ void quantize_weights_kernel(const __grid_constant__ Table<WeightTensor> table) {
  __shared__ Shared shared;
  const WeightRules& rules = table.rules;
  const int t = table.tensor_of_block(blockIdx.x);
  const WeightTensor& tensor = table.tensor[t];
  const int channel = blockIdx.x - table.first_block[t];
  const int length = rules.per_tensor ? tensor.channels * tensor.per_channel : tensor.per_channel;
  const long start = static_cast<long>(channel) * length;
  const Row row{tensor.weight + start, length, tensor.per_channel, tensor.channels_last_window};
  float scale;
  bool damaged = false;
  if (rules.rule == ScaleRule::given) {
    scale = tensor.scale[channel];
    if (tensor.not_finite != nullptr) reach_of(row, shared, damaged);
  } else {
    const WeightReach reach = reach_of(row, shared, damaged);
    scale = rules.rule == ScaleRule::least_squares ? best_scale(row, reach, tensor.codes, shared)
                                                   : scale_of_reach(reach, tensor.codes);
    const int repeat = rules.per_tensor ? tensor.channels : 1;
    for (int c = threadIdx.x; c < repeat; c += blockDim.x) tensor.scale[channel + c] = scale;
  }
  if (damaged && threadIdx.x == 0) *tensor.not_finite = 1;
  const float* gain = tensor.gain != nullptr ? tensor.gain + channel : nullptr;
  quantize_row(row, scale, tensor.codes, gain, static_cast<T*>(tensor.quantized) + start);
}

}  // namespace

void cuda_quantize_weights(const WeightRules& rules, const WeightTensor* weights, int count, CudaStream stream) {
  const auto rows = [&](const WeightTensor& tensor) { return rules.per_tensor ? 1 : tensor.channels; };
  for_each_table(rules, weights, count, rows, [&](const Table<WeightTensor>& table, int blocks) {
    const int threads = rules.per_tensor ? kThreadsOfTensor : kThreads;
    with_type(rules.type,
              [&](auto type) { quantize_weights_kernel<decltype(type)><<<blocks, threads, 0, stream>>>(table); });
    check_launch("quantize_weights");
  });
}

namespace {

/// Returns lsq's dy/ds of a weight, where `rounded` is its code before clamping.
__device__ float slope_of(float weight, float rounded, const WeightCode& code) {
  if (!(rounded >= code.lowest)) return code.lowest;  // also for NaN
  if (rounded > code.highest) return code.highest;
  return -fmaf(-rounded, code.quotient.scale, weight) / code.quotient.scale;
}

/// A block computes the gradients of one channel.
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
      passes = !clips || (rounded >= code.lowest && rounded <= code.highest);  // not NaN
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

namespace {

constexpr int kThreadsOfChannel = 128;

/// What applies to all weights of a launch.
struct Decay {
  float rate = 0;
};

/// A block works on one channel.
template <bool kDecays>
__global__ void __launch_bounds__(kThreadsOfChannel)
    two_of_four_kernel(const __grid_constant__ Table<SparseWeights, Decay> table) {
  const int t = table.tensor_of_block(static_cast<int>(blockIdx.x));
  const SparseWeights& weights = table.tensor[t];
  const int channel = static_cast<int>(blockIdx.x) - table.first_block[t];
  for (int group = static_cast<int>(threadIdx.x); group < weights.groups(); group += kThreadsOfChannel) {
    if constexpr (kDecays) {
      decay_pruned(weights, channel, group, table.rules.rate);
    } else {
      keep_two_of_four(weights, channel, group);
    }
  }
}

template <bool kDecays>
void launch_two_of_four(const Decay& decay, const SparseWeights* weights, int count, CudaStream stream) {
  const auto channels_of = [](const SparseWeights& tensor) { return tensor.channels; };
  for_each_table(decay, weights, count, channels_of, [&](const Table<SparseWeights, Decay>& table, int blocks) {
    two_of_four_kernel<kDecays><<<blocks, kThreadsOfChannel, 0, stream>>>(table);
    check_launch("two_of_four");
  });
}

}  // namespace

void cuda_keep_two_of_four(const SparseWeights* weights, int count, CudaStream stream) {
  launch_two_of_four<false>({}, weights, count, stream);
}

void cuda_decay_pruned(const SparseWeights* weights, int count, float rate, CudaStream stream) {
  launch_two_of_four<true>({rate}, weights, count, stream);
}

}  // namespace octet::kernels
