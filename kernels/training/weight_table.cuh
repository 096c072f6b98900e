// SPDX-License-Identifier: Apache-2.0
// What kernels that work on all weights of a network share: the list of tensors of one launch, and the code of a
// weight. Include it in .cu files only.
#pragma once

#include <algorithm>

#include "kernels/core/values.cuh"
#include "kernels/training/fake_quantize.h"
#include "kernels/training/weights.h"

namespace octet::kernels {

constexpr int kPerLaunch = 56;  ///< tensors of one launch

/// The tensors of one launch and what applies to all of them. It is passed by value: nothing is copied to the device,
/// and a captured graph keeps it. Blocks [first_block[t], first_block[t + 1]) work on tensor t.
template <class Tensor, class Rules = WeightRules>
struct Table {
  Rules rules;
  int count = 0;
  int32_t first_block[kPerLaunch + 1] = {};
  Tensor tensor[kPerLaunch];

  /// Returns the tensor that a block works on.
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

/// Calls launch(table, number of blocks) for each part of the list that fits one launch. blocks_of(tensor) is the
/// number of blocks that a tensor needs.
template <class Tensor, class Rules, class Blocks, class Launch>
void for_each_table(const Rules& rules, const Tensor* tensors, int count, const Blocks& blocks_of,
                    const Launch& launch) {
  for (int at = 0; at < count; at += kPerLaunch) {
    Table<Tensor, Rules> table;
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

/// Fake quantization of weights with one scale, in float.
struct WeightCode {
  RoundedQuotient quotient;
  float lowest, highest;

  __device__ WeightCode(float scale, const WeightCodes& codes)
      : quotient(scale), lowest(static_cast<float>(codes.lowest)), highest(static_cast<float>(codes.highest)) {}
  /// Returns the code of a weight before clamping.
  __device__ float rounded(float value) const { return quotient(value) + 0.0f; }  // + zero point: no code is -0
  /// Returns the fake-quantized weight.
  __device__ float real(float value) const {
    const float code = rounded(value);
    const float above = code > lowest ? code : lowest;  // NaN becomes lowest, as in clamp_code
    return quotient.scale * (above < highest ? above : highest);
  }
};

}  // namespace octet::kernels
