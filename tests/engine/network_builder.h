// SPDX-License-Identifier: Apache-2.0
// Builds random Int8Graphs of operators with random windows, codes and constants.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "src/net/int8_graph.h"

namespace octet::test {

/// A call's arguments hold at most one draw: in which order a compiler evaluates them differs between processors.
class Random {
 public:
  explicit Random(uint64_t seed) : generator_(seed) {}
  int between(int low, int high) {
    return low + static_cast<int>(generator_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(0, 99) < percent; }
  double uniform(double low, double high) { return low + (high - low) * (generator_() >> 11) * 0x1p-53; }
  template <typename T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[between(0, static_cast<int>(values.size()) - 1)];
  }

 private:
  std::mt19937_64 generator_;
};

/// Adds nodes one by one; each function returns the new node's index. Sizes follow from the inputs.
class NetworkBuilder {
 public:
  NetworkBuilder(Random& random, const Shape& input);
  int convolution(int x, std::optional<int> residual = {});  ///< random window, groups and channels
  int linear(int x, int classes);
  int add(int a, int b);
  int concat(const std::vector<int>& inputs);
  int max_pool(int x);
  int avg_pool(int x);
  int global_avg_pool(int x);
  int requantize(int x);
  int mul(int a, int b);
  int lookup(int x, bool by_channel = false);  ///< any table, or one for each channel
  int prelu(int x);                            ///< one slope, one for each channel, or between
  int subsample_pad(int x);
  int slice(int x);
  int resize(int x);
  int resize_bilinear(int x);
  int channel_shuffle(int x);
  int depth_to_space(int x);
  int transposed_convolution(int x);  ///< a convolution that has pixels as channels, and depth_to_space
  /// Multiplies every pixel of a by all pixels of b, in any number of groups. a and b have the same channels.
  int scores(int a, int b);
  int softmax(int x, int groups);
  /// Adds scores, a softmax, and its product with `values`, which have the size of b.
  int attention(int a, int b, int values);
  int flatten(int x);
  /// Adds a convolution with a residual, whose shape its output has.
  int convolution_like(int x, int residual);
  /// Makes x an output, which other nodes may read, unless it is the input or an output already.
  void output(int x);
  /// Adds a float output: x through a random operator, perhaps one that gives images.
  void float_output(int x);
  /// Ends the network with float logits, one more output, and validates it.
  Int8Graph finish(int x);

  const Shape& shape(int node) const { return graph_.nodes[node].shape; }

 private:
  Int8Node& node(Int8Op op, std::vector<int> inputs, const Shape& shape);
  int matmul(int a, int b, int groups, bool transposed);
  int pass_on(Int8Op op, int x, const Shape& shape);
  int pixels_of_channels(int x, int factor_h, int factor_w);
  int weighted(Int8Node n);
  void set_edge(Int8Node& n);
  Window random_window(const Shape& in, Op op);
  int push(Int8Node n);

  Random& random_;
  Int8Graph graph_;
};

int random_channels(Random& random);

/// Whether the image is small enough to make each pixel a channel, or to become sixteen times as large.
bool is_small(const Shape& shape);

}  // namespace octet::test
