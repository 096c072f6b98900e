#include <algorithm>

#include "kernels/cuda_launch.h"
#include "kernels/cuda_values.cuh"
#include "kernels/fake_quantize/cuda_quantize_weights.h"
#include "kernels/fake_quantize/rounded_quotient.h"
#include "kernels/fake_quantize/weight_scale.h"

namespace octet::kernels {
namespace {

constexpr int kPerLaunch = 72;
constexpr int kThreads = 256, kThreadsOfTensor = 1024;
constexpr int kValues = 4;
constexpr int kGradientsOfBlock = kThreads * kValues * 4;

/// Work of one launch, passed by value: nothing is copied to the device, and a captured graph keeps it. Tensor t has
/// the blocks [first_block[t], first_block[t + 1]).
template <class Tensor>
struct Table {
  WeightRules rules;
  int count = 0;
  int32_t first_block[kPerLaunch + 1] = {};
  Tensor tensor[kPerLaunch];

  __device__ int tensor_of_block(int block) const {
    int low = 0, high = count - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first_block[middle] <= block) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};

/// Runs launch(table, blocks) for each part of the list that fits one launch.
template <class Tensor, class Blocks, class Launch>
void for_each_table(const WeightRules& rules, const Tensor* tensors, int count, const Blocks& blocks_of,
                    const Launch& launch) {
  for (int at = 0; at < count; at += kPerLaunch) {
    Table<Tensor> table;
    static_assert(sizeof(table) <= 4096, "the least that every driver takes as a kernel's arguments");
    table.rules = rules;
    table.count = std::min(count - at, kPerLaunch);
    for (int t = 0; t < table.count; ++t) {
      table.tensor[t] = tensors[at + t];
      table.first_block[t + 1] = table.first_block[t] + blocks_of(tensors[at + t]);
    }
    if (table.first_block[table.count] > 0) launch(table, table.first_block[table.count]);
  }
}

/// A row: the values that share one scale, of one channel or of all.
struct Row {
  const float* value;
  int length, per_channel;
  int window;  // 0: in PyTorch's order

  __device__ float in_pytorch_order(int i) const {
    if (window == 0) return value[i];
    const int within = i % per_channel;
    return value[i - within + within % window * (per_channel / window) + within / window];
  }
};

struct Shared {
  float magnitude[32];
  double error[ShrinkFactors::kMost];
  ShrinkFactors factors;
};

/// Largest magnitude of the row, for every thread. NaN is passed over and reported, as is infinity.
__device__ float max_magnitude(const Row& row, Shared& shared, bool& damaged) {
  float largest = 0, zero = 0;
  const auto take = [&](float value) {
    largest = fmaxf(largest, fabsf(value));
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
  for (int other = 16; other > 0; other /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, other));
  if (threadIdx.x % 32 == 0) shared.magnitude[threadIdx.x / 32] = largest;
  damaged = __syncthreads_or(zero != 0.0f) != 0;  // true for NaN
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) largest = fmaxf(largest, shared.magnitude[warp]);
  return largest;
}

/// The fake-quantized weight in float.
struct WeightCode {
  RoundedQuotient quotient;
  float bound;

  __device__ WeightCode(float scale, int largest) : quotient(scale), bound(static_cast<float>(largest)) {}
  __device__ float rounded(float value) const { return quotient(value) + 0.0f; }  // + zero point: no code is -0
  __device__ float real(float value) const {
    const float code = rounded(value);
    const float above = code > -bound ? code : -bound;  // NaN becomes -bound, as in clamp_code
    return quotient.scale * (above < bound ? above : bound);
  }
};

/// Sum of squared errors as squared_error() of fake_quantize.h gives it, by kErrorLanes neighbouring threads.
__device__ double squared_error_of(const Row& row, float scale, int largest) {
  const WeightCode code(scale, largest);
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

/// One group of threads a factor; then every thread picks the same best.
__device__ void try_factors(const Row& row, float magnitude, int largest, Shared& shared, double& best_factor,
                            double& best_error) {
  const int group = threadIdx.x / kErrorLanes, groups = blockDim.x / kErrorLanes;
  for (int f = group; f < shared.factors.count; f += groups) {
    const double error = squared_error_of(row, shrunk_scale(magnitude, shared.factors.factor[f], largest), largest);
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

__device__ float best_scale(const Row& row, float magnitude, int largest, Shared& shared) {
  if (magnitude == 0) return scale_of_magnitude(magnitude, largest);
  double best_factor = 1, best_error = INFINITY;
  if (threadIdx.x == 0) shared.factors = coarse_factors();
  __syncthreads();
  try_factors(row, magnitude, largest, shared, best_factor, best_error);
  if (threadIdx.x == 0) shared.factors = fine_factors(best_factor);
  __syncthreads();
  try_factors(row, magnitude, largest, shared, best_factor, best_error);
  return shrunk_scale(magnitude, best_factor, largest);
}

template <class T>
__device__ void quantize_row(const Row& row, float scale, int largest, T* y) {
  const WeightCode code(scale, largest);
  const bool wide = row.length % kValues == 0 && reinterpret_cast<uintptr_t>(row.value) % 16 == 0 &&
                    reinterpret_cast<uintptr_t>(y) % sizeof(Pack<T, kValues>) == 0;
  if (!wide) {
    for (int i = threadIdx.x; i < row.length; i += blockDim.x) y[i] = narrow<T>(code.real(row.value[i]));
    return;
  }
  for (int i = threadIdx.x * kValues; i < row.length; i += blockDim.x * kValues) {
    const Pack<float, kValues> in = load<kValues, true>(row.value + i, kValues);
    Pack<T, kValues> out;
    for (int j = 0; j < kValues; ++j) out.value[j] = narrow<T>(code.real(in.value[j]));
    store<kValues, true>(out, y + i, kValues);
  }
}

/// One block a row.
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
  if (rules.rule == ScaleRule::given) {
    scale = tensor.scale[channel];
  } else {
    bool damaged = false;
    const float magnitude = max_magnitude(row, shared, damaged);
    scale = rules.rule == ScaleRule::least_squares ? best_scale(row, magnitude, rules.largest, shared)
                                                   : scale_of_magnitude(magnitude, rules.largest);
    const int repeat = rules.per_tensor ? tensor.channels : 1;
    for (int c = threadIdx.x; c < repeat; c += blockDim.x) tensor.scale[channel + c] = scale;
    if (damaged && threadIdx.x == 0) *tensor.not_finite = 1;
  }
  quantize_row(row, scale, rules.largest, static_cast<T*>(tensor.quantized) + start);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    weights_backward_kernel(const __grid_constant__ Table<WeightGradient> table) {
  const int t = table.tensor_of_block(blockIdx.x);
  const WeightGradient& tensor = table.tensor[t];
  const long count = static_cast<long>(tensor.channels) * tensor.per_channel;
  const long start = static_cast<long>(blockIdx.x - table.first_block[t]) * kGradientsOfBlock;
  const T* dy = static_cast<const T*>(tensor.dy);
  const float bound = static_cast<float>(table.rules.largest);
  for (long i = start + threadIdx.x; i < min(start + kGradientsOfBlock, count); i += kThreads) {
    float gradient = widen(dy[i]);
    if (table.rules.rule != ScaleRule::magnitude) {
      const float code = rintf(tensor.weight[i] / tensor.scale[i / tensor.per_channel]);
      if (!(code >= -bound && code <= bound)) gradient = 0;
    }
    tensor.dx[i] = gradient;
  }
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

void cuda_quantize_weights_backward(const WeightRules& rules, const WeightGradient* weights, int count,
                                    CudaStream stream) {
  const auto blocks_of = [](const WeightGradient& tensor) {
    return static_cast<int>(blocks_for(static_cast<long>(tensor.channels) * tensor.per_channel, kGradientsOfBlock));
  };
  for_each_table(rules, weights, count, blocks_of, [&](const Table<WeightGradient>& table, int blocks) {
    with_type(rules.type,
              [&](auto type) { weights_backward_kernel<decltype(type)><<<blocks, kThreads, 0, stream>>>(table); });
    check_launch("quantize_weights_backward");
  });
}

}  // namespace octet::kernels
