// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "tests/kernels/quantize_cuda.h"

namespace octet {
namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

/// One array on the device.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : size_(size) { check(cudaMalloc(&data_, size * sizeof(T)), "cudaMalloc"); }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    check(cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), "copy to the GPU");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* data() { return data_; }
  std::vector<T> host() const {
    std::vector<T> result(size_);
    check(cudaMemcpy(result.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), "copy from the GPU");
    return result;
  }

 private:
  T* data_ = nullptr;
  size_t size_;
};

struct Element {
  int32_t quantized, requantized;
  float rescaled, dequantized;
};

__host__ __device__ Element apply_rule(float x, int32_t acc, float multiplier, float bias, const QParams& q) {
  Element e;
  e.quantized = quantize(x, q);
  e.dequantized = dequantize(e.quantized, q);
  e.rescaled = rescale(acc, multiplier, bias);
  e.requantized = round_code(e.rescaled, q.zero_point, q.quant_min, q.quant_max);
  return e;
}

__global__ void rule(const float* x, const int32_t* acc, const float* multiplier, const float* bias, QParams q,
                     Element* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = apply_rule(x[i], acc[i], multiplier[i], bias[i], q);
}

RuleOutputs split(const std::vector<Element>& elements) {
  RuleOutputs out;
  for (const Element& e : elements) {
    out.quantized.push_back(e.quantized);
    out.requantized.push_back(e.requantized);
    out.rescaled.push_back(e.rescaled);
    out.dequantized.push_back(e.dequantized);
  }
  return out;
}

}  // namespace

RuleOutputs rule_on_host(const RuleInputs& in) {
  std::vector<Element> out;
  for (size_t i = 0; i < in.x.size(); ++i)
    out.push_back(apply_rule(in.x[i], in.acc[i], in.multiplier[i], in.bias[i], in.qparams));
  return split(out);
}

RuleOutputs rule_on_gpu(const RuleInputs& in) {
  const int n = static_cast<int>(in.x.size());
  DeviceArray<float> x(in.x), multiplier(in.multiplier), bias(in.bias);
  DeviceArray<int32_t> acc(in.acc);
  DeviceArray<Element> out(n);
  rule<<<(n + 255) / 256, 256>>>(x.data(), acc.data(), multiplier.data(), bias.data(), in.qparams, out.data(), n);
  check(cudaGetLastError(), "launch");
  check(cudaDeviceSynchronize(), "run");
  return split(out.host());
}

}  // namespace octet
