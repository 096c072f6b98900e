// SPDX-License-Identifier: Apache-2.0
// Functions of one value (SiLU, sigmoid ...) behind a layer with BatchNorm, as the tables with which the layer's
// quantizer applies them in the same pass (kernels/training/norm_quantize.h).
#pragma once

#include <functional>
#include <vector>

#include "kernels/training/norm_quantize.h"
#include "src/quant/plan.h"
#include "src/train/qat/device_table.h"

namespace octet {

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

}  // namespace octet
