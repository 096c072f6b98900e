// The functions of requantize.h on the GPU: the same values, bit for bit.
#pragma once

#include "kernels/cuda_stream.h"
#include "kernels/requantize/requantize.h"

namespace octet::kernels {

/// All pointers on the device, the rule's too.
void cuda_requantize_rows(const ChannelRule& rule, const float* acc, long rows, float* out, CudaStream stream);
void cuda_requantize_rows(const ChannelRule& rule, const double* acc, long rows, float* out, CudaStream stream);
void cuda_rescale_codes(const RescaleRule& rule, const float* x, long count, float* out, CudaStream stream);

/// One value of `a` and one of `b` make one of `out`; all [count].
struct AddData {
  const float* a = nullptr;
  const float* b = nullptr;
  long count = 0;
  float* out = nullptr;
};
void cuda_add_codes(const AddRule& rule, const AddData& data, CudaStream stream);

void cuda_store_codes(int32_t zero_point, const float* centred, long count, uint8_t* out, CudaStream stream);
void cuda_quantize_values(const QParams& qparams, const float* x, long count, uint8_t* out, CudaStream stream);

}  // namespace octet::kernels
