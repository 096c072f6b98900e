// From nodes of an Int8Graph to the plain structs that kernels take. Engines choose how far apart neighbouring pixels
// lie (ChannelStride) and otherwise share this translation, so that there is one place where it can be wrong.
#pragma once

#include <string_view>

#include "kernels/bilinear_int8/bilinear_int8.h"
#include "kernels/conv2d_int8/conv2d_int8.h"
#include "kernels/elementwise_int8/elementwise_int8.h"
#include "kernels/elementwise_int8/lookup_int8.h"
#include "kernels/elementwise_int8/pick_int8.h"
#include "kernels/elementwise_int8/subsample_pad_int8.h"
#include "kernels/matmul_int8/matmul_int8.h"
#include "kernels/pool_int8/pool_int8.h"
#include "kernels/softmax_int8/softmax_int8.h"
#include "src/common/error.h"
#include "src/graph/int8_graph.h"

namespace octet {

/// Bytes between neighbouring pixels of a tensor with that many channels.
using ChannelStride = int (*)(int channels);

/// For what stands behind a switch over all operators: no engine goes on with a node that it does not know.
Error no_step(const Int8Node& node, std::string_view engine);

struct Lowering {
  const Int8Graph& graph;
  ChannelStride stride;

  /// conv2d and linear (a 1x1 convolution of a 1x1 image). Pointers into the graph.
  kernels::Conv2dShape conv2d_shape(int node) const;
  kernels::Conv2dParams conv2d_params(int node) const;
  kernels::Conv2dWeights conv2d_weights(int node) const;  ///< points into the graph

  /// max_pool, avg_pool, global_avg_pool (a window of the image's size).
  kernels::PoolShape pool_shape(int node) const;
  kernels::MaxPoolParams max_pool_params(int node) const;
  kernels::AvgPoolParams avg_pool_params(int node) const;

  kernels::BilinearShape bilinear_shape(int node) const;
  kernels::BilinearParams bilinear_params(int node) const;

  /// add, requantize and one input of a concat.
  kernels::ElementwiseShape elementwise_shape(int node, size_t input) const;
  kernels::RequantizeParams requantize_params(int node, size_t input) const;
  kernels::AddParams add_params(int node) const;

  kernels::ElementwiseShape mul_shape(int node) const;
  kernels::MulParams mul_params(int node) const;

  kernels::MatmulShape matmul_shape(int node) const;
  kernels::MatmulParams matmul_params(int node) const;
  kernels::SoftmaxShape softmax_shape(int node) const;
  kernels::SoftmaxParams softmax_params(int node) const;

  kernels::SubsamplePadShape subsample_pad_shape(int node) const;
  kernels::SubsamplePadParams subsample_pad_params(int node) const;

  /// slice, resize, channel_shuffle, depth_to_space.
  kernels::PickShape pick_shape(int node) const;
  /// A lookup reads and writes pixels of one stride: all bytes of a row, or of a batch, can be looked up at once.
  kernels::LookupTable lookup_table(int node) const;

  const Int8Node& input(int node, size_t index) const { return graph.nodes[graph.nodes[node].inputs[index]]; }
  /// Whether the node is a flatten that can read its input's memory as it is: its pixels lie without gaps.
  bool flatten_is_alias(int node) const;
  /// Between the pixels of the node's output; logits are dense.
  int output_stride(int node) const;
};

}  // namespace octet
