// SPDX-License-Identifier: Apache-2.0
#include "kernels/core/launch.cuh"
#include "kernels/core/values.cuh"
#include "kernels/training/codes.h"

namespace octet::kernels {
namespace {

constexpr int kThreads = 256;
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
