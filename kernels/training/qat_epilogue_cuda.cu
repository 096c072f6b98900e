// SPDX-License-Identifier: Apache-2.0
// All of these kernels are bound by memory: a thread computes one value.
#include "kernels/core/launch.cuh"

#include "kernels/core/values.cuh"
#include "kernels/training/qat_epilogue.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;

__device__ long value_index() { return static_cast<long>(blockIdx.x) * kThreads + threadIdx.x; }

template <class Acc>
__global__ void requantize_rows_kernel(ChannelRule rule, const Acc* __restrict__ acc, long count,
                                       float* __restrict__ out) {
  const long i = value_index();
  if (i >= count) return;
  const int k = static_cast<int>(i % rule.channels);
  float t = rescale(static_cast<int32_t>(acc[i]), rule.multiplier[k], rule.bias[k]);
  if (rule.residual != nullptr) t = fmaf(rule.residual[i], rule.residual_multiplier, t);
  out[i] = rule.rounding.float_output ? t : round_centred(t, rule.rounding);
}

__global__ void rescale_codes_kernel(RescaleRule rule, const float* __restrict__ x, long count,
                                     float* __restrict__ out) {
  const long i = value_index();
  if (i >= count) return;
  const float t = x[i] * rule.multiplier;
  out[i] = rule.rounding.float_output ? t : round_centred(t, rule.rounding);
}

__global__ void add_codes_kernel(AddRule rule, AddData data) {
  const long i = value_index();
  if (i >= data.count) return;
  const float t = fmaf(data.b[i], rule.multiplier_b, data.a[i] * rule.multiplier_a);
  data.out[i] = rule.rounding.float_output ? t : round_centred(t, rule.rounding);
}

__global__ void store_codes_kernel(int32_t zero_point, const float* __restrict__ centred, long count,
                                   uint8_t* __restrict__ out) {
  const long i = value_index();
  if (i < count) out[i] = static_cast<uint8_t>(static_cast<int32_t>(centred[i]) + zero_point);
}

__global__ void quantize_values_kernel(QParams qparams, const float* __restrict__ x, long count,
                                       uint8_t* __restrict__ out) {
  const long i = value_index();
  if (i < count) out[i] = static_cast<uint8_t>(quantize(x[i], qparams));
}

template <class Acc>
void requantize(const ChannelRule& rule, const Acc* acc, long rows, float* out, CudaStream stream) {
  const long count = rows * rule.channels;
  requantize_rows_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(rule, acc, count, out);
  check_launch("requantize_rows");
}

}  // namespace

void cuda_requantize_rows(const ChannelRule& rule, const float* acc, long rows, float* out, CudaStream stream) {
  requantize(rule, acc, rows, out, stream);
}

void cuda_requantize_rows(const ChannelRule& rule, const double* acc, long rows, float* out, CudaStream stream) {
  requantize(rule, acc, rows, out, stream);
}

void cuda_rescale_codes(const RescaleRule& rule, const float* x, long count, float* out, CudaStream stream) {
  rescale_codes_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(rule, x, count, out);
  check_launch("rescale_codes");
}

void cuda_add_codes(const AddRule& rule, const AddData& data, CudaStream stream) {
  add_codes_kernel<<<blocks_for(data.count, kThreads), kThreads, 0, stream>>>(rule, data);
  check_launch("add_codes");
}

void cuda_store_codes(int32_t zero_point, const float* centred, long count, uint8_t* out, CudaStream stream) {
  store_codes_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(zero_point, centred, count, out);
  check_launch("store_codes");
}

void cuda_quantize_values(const QParams& qparams, const float* x, long count, uint8_t* out, CudaStream stream) {
  quantize_values_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(qparams, x, count, out);
  check_launch("quantize_values");
}

namespace {

constexpr int kValues = 16;  // values of a thread, where the layout allows it

/// A thread takes kPack neighbouring channels of a row.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) real_values_kernel(CodeRows from, T* y) {
  const long at = static_cast<long>(blockIdx.x) * kThreads + threadIdx.x;
  const int columns = from.channels / kPack;
  if (at >= from.rows * columns) return;
  const long place = from.stride == from.channels ? at * kPack : at / columns * from.stride + at % columns * kPack;
  const Pack<uint8_t, kPack> codes = *reinterpret_cast<const Pack<uint8_t, kPack>*>(from.codes + place);
  Pack<T, kPack> values;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const int32_t code = from.qparams.is_signed() ? static_cast<int8_t>(codes.value[i]) : codes.value[i];
    values.value[i] = narrow<T>(dequantize(code, from.qparams));
  }
  store<kPack, true>(values, y + at * kPack, kPack);
}

__global__ void __launch_bounds__(kThreads) quantize_rows_kernel(CodeRows to, const float* x, uint8_t* codes) {
  const long row = static_cast<long>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= to.rows) return;
  for (int c = 0; c < to.stride; ++c)
    codes[row * to.stride + c] =
        c < to.channels ? static_cast<uint8_t>(quantize(x[row * to.channels + c], to.qparams)) : 0;
}

}  // namespace

void cuda_real_values(const CodeRows& from, ValueType type, void* y, CudaStream stream) {
  if (from.rows == 0) return;
  const bool wide =
      from.channels % kValues == 0 && from.stride % kValues == 0 && is_aligned(from.codes) && is_aligned(y);
  with_pack<kValues>(type, wide, [&](auto value, auto pack) {
    const unsigned blocks = blocks_for(from.rows * (from.channels / pack()), kThreads);
    real_values_kernel<decltype(value), pack()>
        <<<blocks, kThreads, 0, stream>>>(from, static_cast<decltype(value)*>(y));
  });
  check_launch("real_values");
}

void cuda_quantize_rows(const CodeRows& to, const float* x, uint8_t* codes, CudaStream stream) {
  if (to.rows == 0) return;
  quantize_rows_kernel<<<blocks_for(to.rows, kThreads), kThreads, 0, stream>>>(to, x, codes);
  check_launch("quantize_rows");
}

}  // namespace octet::kernels
