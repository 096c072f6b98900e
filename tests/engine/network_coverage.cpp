// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/network_coverage.h"

#include <optional>
#include <set>

#include "src/net/op_traits.h"

namespace octet::test {
namespace {

constexpr int kEnoughForAll = 100, kRare = 50;
constexpr const char* kResidual = "a residual";
constexpr const char* kUneven = "uneven padding";
constexpr const char* kFactors = "mul by a factor for each channel";
constexpr const char* kBothWays = ", higher and wider";
constexpr const char* kTransposed = "a transposed convolution";
constexpr const char* kScores = "a transposed matmul";
constexpr const char* kMixes = "a matmul that is not transposed";
constexpr const char* kHeads = "a matmul of several heads";
constexpr const char* kSlopes = "a prelu of several slopes";
constexpr const char* kTables = "a lookup with a table for each channel";
constexpr const char* kCodes = "an output of codes";
constexpr const char* kSparse = "2:4 sparse weights";
constexpr const char* kImages = "a float output of several pixels";
constexpr const char* kOutputs[] = {"1 output", "2 outputs", "3 outputs"};

std::set<std::string> found_in(const Int8Graph& graph) {
  std::set<std::string> found;
  for (const Int8Node& node : graph.nodes) {
    found.emplace(int8_op_name(node.op));
    if (!node.window.pad.is_even()) found.emplace(kUneven);
    if (node.two_of_four) found.emplace(kSparse);
    if (node.op == Int8Op::conv2d && node.inputs.size() > 1) found.emplace(kResidual);
    if (node.op == Int8Op::mul && graph.nodes[node.inputs[1]].shape != node.shape) found.emplace(kFactors);
    if (node.op == Int8Op::matmul) found.emplace(node.transposed ? kScores : kMixes);
    if (node.op == Int8Op::matmul && node.groups > 1) found.emplace(kHeads);
    if (node.op == Int8Op::prelu && node.groups > 1) found.emplace(kSlopes);
    if (node.op == Int8Op::lookup && node.groups > 1) found.emplace(kTables);
    const bool larger = node.factor_h > 1 && node.factor_w > 1;
    if (larger) found.emplace(std::string(int8_op_name(node.op)) + kBothWays);
    if (larger && node.op == Int8Op::depth_to_space && graph.nodes[node.inputs[0]].op == Int8Op::conv2d)
      found.emplace(kTransposed);
  }
  for (const int output : graph.outputs) {
    const Int8Node& node = graph.nodes[output];
    if (!node.float_output) found.emplace(kCodes);
    if (node.float_output && node.shape.h * node.shape.w > 1) found.emplace(kImages);
  }
  found.emplace(kOutputs[graph.outputs.size() - 1]);
  return found;
}

}  // namespace

NetworkCoverage::NetworkCoverage() {
  for (const Op op : all_ops()) {
    if (traits(op).int8) networks_with_[std::string(op_name(op))] = 0;
  }
  for (const char* form :
       {kResidual, kUneven, kFactors, kTransposed, kScores, kMixes, kHeads, kSlopes, kTables, kCodes, kImages, kSparse})
    networks_with_[form] = 0;
  for (const char* count : kOutputs) networks_with_[count] = 0;
  for (const Int8Op op : {Int8Op::resize, Int8Op::depth_to_space, Int8Op::resize_bilinear})
    networks_with_[std::string(int8_op_name(op)) + kBothWays] = 0;
}

void NetworkCoverage::add(const Int8Graph& graph, int images) {
  ++networks_;
  for (const Int8Node& node : graph.nodes) bytes_ += node.image_bytes() * static_cast<size_t>(images);
  for (const std::string& what : found_in(graph)) ++networks_with_.at(what);
}

std::string NetworkCoverage::text() const {
  std::string text = std::to_string(networks_) + " networks, " + std::to_string(bytes_) + " bytes of nodes; with";
  const char* before = " ";
  for (const auto& [what, count] : networks_with_) {
    text += before + what + ": " + std::to_string(count);
    before = ", ";
  }
  return text;
}

std::string NetworkCoverage::rare() const {
  std::string rare;
  for (const auto& [what, count] : networks_with_) {
    if (count * kRare < networks_ && networks_ >= kEnoughForAll) rare += (rare.empty() ? "" : ", ") + what;
  }
  return rare;
}

}  // namespace octet::test
