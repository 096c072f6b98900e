// SPDX-License-Identifier: Apache-2.0
// Slow, independent walks for the tests of quant: a Graph in double, and an Int8Graph by the letter of its contract.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/net/graph.h"
#include "src/net/int8_graph.h"
#include "src/net/zoo.h"
#include "src/quant/node_constants.h"

namespace octet::testing {

/// Returns a graph of `nodes` after the input "input". A node without inputs reads the node before it.
Graph graph_of(const std::vector<NodeSpec>& nodes, const Shape& input = {4, 6, 6});

/// Returns a convolution that keeps height and width, where its kernel is odd, and reads the node before it.
NodeSpec conv_of(const std::string& name, int channels, int kernel = 1, int groups = 1, int bias = 1);

/// Returns a node without attributes.
NodeSpec node_of(const std::string& name, const std::string& op, std::vector<std::string> inputs = {});

/// One image, CHW.
using Image = std::vector<double>;

/// Replaces a node's output.
using Hook = std::function<void(int node, Image& output)>;

/// Returns the outputs of all nodes of a graph, fused or not. `hook` may change each of them.
std::vector<Image> walk_float(const Graph& graph, const FloatParams& params, const Image& image, const Hook& hook = {});

/// Returns the real values of all nodes' codes, CHW (the logits for the last node), computed in integers and float as
/// int8_graph.h says. `pixels`: uint8 [H, W, C].
std::vector<Image> walk_int8(const Int8Graph& graph, const std::vector<uint8_t>& pixels);

/// Returns random parameters that look like trained ones: BatchNorm gains of both signs, variances near one.
FloatParams random_params(const Graph& graph, uint64_t seed);

/// Returns `pixels` normalized as the network reads them, CHW.
Image normalized(const std::vector<uint8_t>& pixels, const Shape& shape, const Preprocessing& preprocessing);

std::vector<uint8_t> random_pixels(const Shape& shape, uint64_t seed);

}  // namespace octet::testing
