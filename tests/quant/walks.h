// Slow, independent walks for the tests of quant: a Graph in double, and an Int8Graph by the letter of its contract.
#pragma once

#include <functional>
#include <vector>

#include "src/graph/graph.h"
#include "src/graph/int8_graph.h"
#include "src/graph/zoo.h"
#include "src/quant/float_params.h"

namespace octet::testing {

/// A graph of `nodes` after the input "input"; a node without inputs reads the node before it.
Graph graph_of(const std::vector<NodeSpec>& nodes, const Shape& input = {4, 6, 6});

/// One image, CHW.
using Image = std::vector<double>;

/// Replaces a node's output.
using Hook = std::function<void(int node, Image& output)>;

/// Outputs of all nodes, before and after fuse. `weights` replaces params[name + ".weight"] where it has the name.
std::vector<Image> walk_float(const Graph& graph, const FloatParams& params, const Image& image, const Hook& hook = {});

/// Real values of all nodes' codes, CHW (of the last node: the logits), computed in integers and float as int8_graph.h
/// says. `pixels`: uint8 [H, W, C].
std::vector<Image> walk_int8(const Int8Graph& graph, const std::vector<uint8_t>& pixels);

/// Random parameters of a graph as trained ones look: BatchNorm gains of both signs, variances near one.
FloatParams random_params(const Graph& graph, uint64_t seed);

/// The normalized image that `pixels` enter the network as, CHW.
Image normalized(const std::vector<uint8_t>& pixels, const Shape& shape, const Preprocessing& preprocessing);

std::vector<uint8_t> random_pixels(const Shape& shape, uint64_t seed);

}  // namespace octet::testing
