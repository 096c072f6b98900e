// SPDX-License-Identifier: Apache-2.0
// Translates nodes of an Int8Graph into the plain structs that kernels take. Engines choose the distance of
// neighbouring pixels (ChannelStride) and share the rest, so that there is one place where the translation can be
// wrong.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "kernels/operators/attention.h"
#include "kernels/operators/bilinear.h"
#include "kernels/operators/copies.h"
#include "kernels/operators/elementwise.h"
#include "kernels/operators/lookup.h"
#include "kernels/operators/pool.h"
#include "src/base/error.h"
#include "src/net/int8_graph.h"

namespace octet {

/// Returns the bytes from one pixel to the next in a tensor with so many channels.
using ChannelStride = int (*)(int channels);

/// Returns the Error(promise) of an engine whose switch over the operators lacks the node's operator.
Error no_step(const Int8Node& node, std::string_view engine);

/// Shapes, parameters and weights of a graph's nodes; each function expects a node of the operators it names.
struct Lowering {
  const Int8Graph& graph;
  ChannelStride stride;

  /// conv2d, and linear as a 1x1 convolution of a 1x1 image.
  kernels::Conv2dShape conv2d_shape(int node) const;
  kernels::Conv2dParams conv2d_params(int node) const;
  kernels::Conv2dWeights conv2d_weights(int node) const;  ///< pointers into the graph

  /// max_pool, avg_pool, and global_avg_pool as a window of the image's size.
  kernels::PoolShape pool_shape(int node) const;
  kernels::MaxPoolParams max_pool_params(int node) const;
  kernels::AvgPoolParams avg_pool_params(int node) const;

  kernels::BilinearShape bilinear_shape(int node) const;
  kernels::BilinearParams bilinear_params(int node) const;

  /// add, requantize, and one input of a concat.
  kernels::ElementwiseShape elementwise_shape(int node, size_t input) const;
  kernels::RequantizeParams requantize_params(int node, size_t input) const;
  kernels::AddParams add_params(int node) const;

  kernels::ElementwiseShape mul_shape(int node) const;
  kernels::MulParams mul_params(int node) const;

  kernels::MatmulShape matmul_shape(int node) const;
  kernels::MatmulParams matmul_params(int node) const;
  kernels::SoftmaxShape softmax_shape(int node) const;
  kernels::SoftmaxParams softmax_params(int node) const;

  kernels::PreluParams prelu_params(int node) const;
  /// The multiplier of negative values for each channel, up to the stride (behind the last channel 0).
  std::vector<float> prelu_slopes(int node) const;

  kernels::SubsamplePadShape subsample_pad_shape(int node) const;
  kernels::SubsamplePadParams subsample_pad_params(int node) const;

  /// slice, resize, channel_shuffle, depth_to_space.
  kernels::PickShape pick_shape(int node) const;
  /// The table of a lookup. Its input and output have the same stride, so a row or a batch can be looked up as one
  /// array.
  kernels::LookupTable lookup_table(int node) const;
  /// The tables of a lookup with one for each channel, [stride, 256] (behind the last channel 0).
  std::vector<uint8_t> channel_tables(int node) const;

  const Int8Node& input(int node, size_t index) const { return graph.nodes[graph.nodes[node].inputs[index]]; }
  /// Whether the node is a flatten whose output can share its input's memory, because the pixels lie without gaps.
  bool flatten_is_alias(int node) const;
  /// Returns the elements from one pixel of the node's output to the next; logits are dense.
  int output_stride(int node) const;
};

}  // namespace octet
