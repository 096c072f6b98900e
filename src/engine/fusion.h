// Which nodes an engine may compute in one pass. Fusion is the program's affair: a tap still sees every node.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/engine/engine.h"
#include "src/graph/int8_graph.h"

namespace octet {

/// By node: for a lookup that nothing but itself needs the codes of, the conv2d or linear that can write table[code]
/// right away; -1 for every other node. Such a convolution runs only for a tap: without one its codes are never stored.
std::vector<int> merged_convolutions(const Int8Graph& graph);

enum class GroupKind {
  conv_max_pool,      ///< conv2d without residual, and the max_pool that reads it
  inverted_residual,  ///< 1x1 conv2d, depthwise 3x3 (stride 1 or 2, padded by 1 all around), 1x1 conv2d, perhaps with a
                      ///< residual (Sandler et al., "MobileNetV2", 2018); or without the first, as in its first block
  expand_reduce,  ///< 1x1 conv2d to more channels, perhaps with a residual, and right behind it a 1x1 conv2d to fewer
                  ///< that reads it: the end of a ResNet's bottleneck and the start of the next (He et al., "Deep
                  ///< Residual Learning for Image Recognition", 2016). Others may read the first one's output too
  pool_linear,    ///< global_avg_pool, and the linear that reads it, perhaps through a flatten that is no copy
};

std::string_view group_name(GroupKind kind);

/// Nodes that one kernel may compute together. But for expand_reduce nobody else reads what any but the last of them
/// writes; the first has one input, and only the last may read anything else: its residual.
struct NodeGroup {
  GroupKind kind;
  std::vector<int> nodes;  ///< each is inputs[0] of the next, a flatten between them left out
};

/// All of the graph, by first node. No node is in two of them, and none ends in a convolution that a lookup is merged
/// into: that does its own work already.
std::vector<NodeGroup> node_groups(const Int8Graph& graph);

/// By node, from every node's LayerInfo::kernel: the node whose kernel computes it, or whose memory it is ("merged" and
/// "alias" follow their first input); else itself.
std::vector<int> computed_by(const Int8Graph& graph, const std::vector<std::string>& kernels);

/// What a program of the graph says of its nodes, for people: "merged" says into which node's kernel.
std::vector<LayerInfo> say_where_merged(const Int8Graph& graph, std::vector<LayerInfo> layers);

}  // namespace octet
