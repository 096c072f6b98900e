// A part of a network, walked by itself: what one process of several runs when the network is cut between them.
#pragma once

#include <vector>

#include "src/model/model.h"

namespace octet {

/// Nodes first + 1 to last; with first 0 also node 0, the input.
struct GraphPart {
  int first = 0, last = 0;
};

/// walk() of a part: x is what node `first` gave, after its hooks; with first 0 the picture. Returns what node `last`
/// gives; nothing else of the part may be read behind it (see cut_points()). walk() is the part from 0 to the first
/// output, flattened.
at::Tensor walk_part(const Graph& graph, const Weights& weights, const GraphPart& part, const at::Tensor& x,
                     const WalkMode& mode, const WalkHooks& hooks = {});

/// Nodes behind which the network may be cut: of all that is known there only what this one gave is read later. In
/// ascending order, without input and outputs.
std::vector<int> cut_points(const Graph& graph);

}  // namespace octet
