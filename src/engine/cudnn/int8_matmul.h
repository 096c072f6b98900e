// cuBLASLt's int8 matrix product: int32 sums, exact. No CUDA types here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "src/cuda/stream.h"

namespace octet {

/// sums[rows, outputs] = x[rows, inputs] * weight[outputs, inputs]^T, all dense. inputs and outputs are multiples of
/// 16, tensors start at multiples of 16 bytes.
struct Int8MatmulShape {
  int rows = 0, inputs = 0, outputs = 0;
};

struct Int8MatmulTensors {
  const int8_t *x = nullptr, *weight = nullptr;
  int32_t* sums = nullptr;
  void* workspace = nullptr;
};

class Int8Matmul {
 public:
  /// Times cuBLASLt's proposals by launches on `tensors` (workspace is not used) and keeps the fastest. Throws
  /// Error(promise) when it has none.
  Int8Matmul(const Int8MatmulShape& shape, const Int8MatmulTensors& tensors, const Stream& stream);
  ~Int8Matmul();
  std::string name() const;  ///< "fastest of 8"
  size_t workspace_bytes() const;
  /// Can be captured in a CUDA graph.
  void launch(const Int8MatmulTensors& tensors, CudaStream stream) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octet
