// SPDX-License-Identifier: Apache-2.0
// Operators that one kernel computes together with the quantizer behind them: BatchNorm in training, a function of one
// value behind that (SiLU, sigmoid ...; function_tables.cpp), and the product of squeeze-and-excite. The functions
// cuda_* are in builds with CUDA and take CUDA tensors. They neither wait for the GPU nor allocate outside of
// LibTorch's allocator, so that steps can be captured in a CUDA graph.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/core/quantize.h"
#include "kernels/training/norm_quantize.h"
#include "src/quant/plan.h"
#include "src/train/model/model.h"

namespace octet {

/// An array of structs in device memory, at an address that never changes, since captured graphs hold it.
template <class T>
class DeviceTable {
 public:
  DeviceTable() = default;
  DeviceTable(size_t size, at::Device device)
      : bytes_(at::empty({static_cast<int64_t>(size * sizeof(T))}, at::TensorOptions(device).dtype(at::kByte))) {}
  bool defined() const { return bytes_.defined(); }
  T* row(size_t index) const { return static_cast<T*>(bytes_.data_ptr()) + index; }
  void write(std::vector<T> rows) { bytes_.copy_(at::from_blob(rows.data(), bytes_.sizes(), at::kByte)); }
  std::vector<T> read() const {
    std::vector<T> rows(bytes_.numel() / sizeof(T));
    at::from_blob(rows.data(), bytes_.sizes(), at::kByte).copy_(bytes_);
    return rows;
  }

 private:
  at::Tensor bytes_;
};

// Functions behind a layer with BatchNorm, as the tables with which the layer's quantizer applies them in the same pass
// (kernels/training/norm_quantize.h).

/// Returns the table of a lookup for the codes of x: values as its int8 table gives them, slopes as LibTorch's
/// derivative, and 0 where its activation or its quantizer y lets no gradient pass.
kernels::FunctionTable function_table(const Node& lookup, const QParams& x, const QParams& y);

/// The tables of a network.
class FunctionTables {
 public:
  FunctionTables(const Prepared& prepared, at::Device device);

  /// Returns the lookup that alone reads a convolution or linear with BatchNorm and no residual, where both have scales
  /// of their own and the function is the same for all channels; -1 for other nodes.
  int lookup_of(int node) const { return lookups_[node]; }
  bool any() const { return !layers_.empty(); }

  /// Takes the qparams of all nodes from the host. The tables are made for them now where a walk has read tables, since
  /// the next one may be recorded and must not wait; else in refresh().
  void set(const std::vector<QParams>& edges);
  /// Says that ranges move where the tables are: in a walk that observes, or in a replay of a recorded one.
  void ranges_move() { stale_ = true; }
  /// Makes the tables ready for a walk that reads them. After ranges_move() it calls `edges`, which may wait for the
  /// GPU, for the qparams as they are now.
  void refresh(const std::function<std::vector<QParams>()>& edges);
  /// Returns the table of a layer with a lookup, in device memory.
  const kernels::FunctionTable* of(int node) const { return device_.row(row_[node]); }

 private:
  struct Made {
    QParams x, y;
    bool operator==(const Made&) const = default;
  };

  void write(const std::vector<QParams>& edges);

  const Prepared& prepared_;
  std::vector<int> lookups_, layers_;  // by node; those with lookups
  std::vector<size_t> row_;            // by node
  std::vector<Made> made_;             // by row: what its table was made for
  std::vector<kernels::FunctionTable> host_;
  DeviceTable<kernels::FunctionTable> device_;
  bool stale_ = true;     // the ranges may be others than those that the tables were made for
  bool is_read_ = false;  // by a walk, ever
};

// BatchNorm and its quantizer.

struct NormQuantizer {
  kernels::EdgeQuantizer* edge = nullptr;  ///< in device memory
  bool observe = false;                    ///< its range first follows what is quantized
  kernels::Clamp activation;
  double epsilon = kBatchNormEpsilon;
  const kernels::FunctionTable* function = nullptr;  ///< in device memory, or null. Then the range is not observed
};

/// Returns whether cuda_norm_quantize() takes y: float16 or bfloat16, channels-last with channels in eights, at least
/// two values a channel, no bias, and a residual, if there is one, of the same kind.
bool norm_quantize_fits(const Unfinished& y);

/// Two tensors of the same memory. Their readers' gradients are added in the backward pass of what made them, where one
/// tensor's would be added in a pass of their own.
struct Twins {
  at::Tensor first, second;
  std::function<at::Tensor()> again;  ///< makes them once more, for who has not kept them; null with a residual
};

/// Returns fake_quantize(activation(batch_norm(y.value) + y.residual)) in training, and moves the running statistics as
/// at::batch_norm() does. BatchNorm's result is rounded to its type, the sum is not. y.value is kept for the backward
/// pass, and one bit a value; sums are always added in the same order. With a function, which takes no residual, its
/// table gives the results instead.
Twins cuda_norm_quantize(const Unfinished& y, const BatchNormTensors& batch_norm, const NormQuantizer& quantizer);

// The product of squeeze-and-excite and its quantizer.

struct ExciteQuantizer {
  const QParams* device = nullptr;  ///< in device memory, read when the kernel runs
  kernels::Clamp activation;
};

/// Returns whether cuda_excite_quantize() takes them: x as is_image_channels() says, and a factor of the same type for
/// each of its images and channels.
bool excite_fits(const at::Tensor& x, const at::Tensor& factor);

/// Returns fake_quantize(activation(x * factor)), where the product is rounded to x's type. x, the factor and one bit a
/// value are kept for the backward pass; sums are always added in the same order.
at::Tensor cuda_excite_quantize(const at::Tensor& x, const at::Tensor& factor, const ExciteQuantizer& quantizer);

}  // namespace octet
