// SPDX-License-Identifier: Apache-2.0
// Which nodes an engine may compute in one pass. Only programs know of fusion: a tap still sees every node.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/engine/engine.h"
#include "src/net/int8_graph.h"

namespace octet {

/// Returns for each node: if it is a lookup, and the only reader of a conv2d or linear that can therefore write
/// table[code] directly, that convolution; else -1. Without a tap the convolution's own codes are never stored.
std::vector<int> merged_convolutions(const Int8Graph& graph);

/// Which operators a group consists of.
enum class GroupKind {
  conv_lookup,        ///< conv2d without residual, and the lookup of one table a channel that reads it
  conv_max_pool,      ///< conv2d without residual, and the max_pool that reads it
  inverted_residual,  ///< 1x1 conv2d, depthwise 3x3 (stride 1 or 2, padded by 1 all around), 1x1 conv2d, perhaps with a
                      ///< residual (Sandler et al., "MobileNetV2", 2018); its first block lacks the first conv2d
  expand_reduce,  ///< 1x1 conv2d to more channels, perhaps with a residual, and as the next node a 1x1 conv2d to fewer
                  ///< that reads it: the end of a ResNet's bottleneck and the start of the next (He et al., "Deep
                  ///< Residual Learning for Image Recognition", 2016). Other nodes may read the first one's output too
  pool_linear,    ///< global_avg_pool, and the linear that reads it, perhaps through a flatten that copies nothing
};

std::string_view group_name(GroupKind kind);

/// Nodes that one kernel may compute together. Only the last node's output is read outside the group, except that other
/// nodes may read the first output of an expand_reduce. The first node of every kind but expand_reduce has one input;
/// apart from that, a group reads the residual of one of its nodes.
struct NodeGroup {
  GroupKind kind;
  std::vector<int> nodes;  ///< each is inputs[0] of the next, omitting a flatten between them
};

/// Returns all groups of the graph, ordered by their first nodes. No node is in two groups, and no convolution that a
/// lookup is merged into is in one.
std::vector<NodeGroup> node_groups(const Int8Graph& graph);

/// Returns for each node, from all nodes' LayerInfo::kernel, the node whose kernel computes it or whose memory it
/// shares: for "merged" and "alias" that of its first input, else the node itself.
std::vector<int> computed_by(const Int8Graph& graph, const std::vector<std::string>& kernels);

/// Returns `layers`, a program's layers(), with "merged" completed to "merged into NODE", for people.
std::vector<LayerInfo> say_where_merged(const Int8Graph& graph, std::vector<LayerInfo> layers);

}  // namespace octet
