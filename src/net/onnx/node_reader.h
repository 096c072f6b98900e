// SPDX-License-Identifier: Apache-2.0
// How a rule of the ONNX import reads its node: inputs, attributes and outputs.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/net/onnx/network.h"

namespace octet {

/// A form that octet has not. `cure` is what to do about it wherever it stands in the network.
class OnnxRefusal : public Error {
 public:
  OnnxRefusal(const Error& error, std::string cure) : Error(error), cure(std::move(cure)) {}
  std::string cure;  ///< "; change it ...", to be added to the message
};

/// Gives a rule the inputs and attributes of its node one by one, and refuses what no rule took. Input functions differ
/// in what they accept (OnnxValue); all fail for a missing input.
class NodeReader {
 public:
  NodeReader(const onnx::NodeProto& node, Network& network) : node_(node), network_(network) {}

  const std::string& op() const { return node_.op_type(); }
  int opset() const { return network_.file().opset; }
  std::string label() const { return node_label(node_); }
  [[noreturn]] void fail(const std::string& what) const;  ///< `what` names the cure
  /// Throws OnnxRefusal for a form that octet has not. cure: "; ..."; "": what can be done about any form.
  [[noreturn]] void refuse(const std::string& what, const std::string& cure = "") const;
  [[noreturn]] void invalid(const std::string& what) const;  ///< for what ONNX forbids; names the cure

  int inputs() const { return node_.input_size(); }
  bool has_input(int i) const { return i < node_.input_size() && !node_.input(i).empty(); }
  const OnnxValue& input(int i);                ///< any value
  const OnnxValue& activation(int i);           ///< an activation as it is: no factor, bounds, padding or heads
  const OnnxValue& window_input(int i);         ///< an activation that may have padding
  const OnnxValue& scaled_input(int i);         ///< an activation that may have a factor and a shift
  const OnnxValue& bounded_input(int i);        ///< an activation that may have bounds
  const OnnxValue& head_input(int i);           ///< an activation that may be in heads and have a factor and a shift
  const Constant& constant(int i);              ///< a constant without NaN and infinity
  const Constant& bound(int i);                 ///< a constant of any values
  const Constant& weights(int i, size_t rank);  ///< a float32 constant, every dimension in 1..kMaxDimension
  std::vector<int64_t> integers_input(int i);   ///< a constant of integers, of rank 0 or 1
  bool all_constant();                          ///< whether every input is a constant
  int readers(int i) const;                     ///< how many nodes and outputs read the value of input i

  bool has(const char* name) { return find(name) != nullptr; }
  int64_t integer(const char* name, int64_t fallback);
  float real(const char* name, float fallback);
  std::string text(const char* name, const std::string& fallback);
  std::vector<int64_t> integers(const char* name, std::vector<int64_t> fallback);
  /// Returns the row of integers that is input i or, in older opsets, an attribute; empty if neither is given.
  std::vector<int64_t> row(int i, const char* name);
  const onnx::AttributeProto* attribute(const char* name) { return find(name); }
  void done();  ///< fails for an attribute that was not asked for

  /// Returns names for a node of the Graph, the best first: of the PyTorch module whose weight is the input
  /// `weight_input`, of the file's node, of its output.
  std::vector<std::string> names(int weight_input = -1) const;
  const std::string& name_of_input(int i) const { return node_.input(i); }

  int outputs() const { return node_.output_size(); }
  const std::string& name_of_output(int i) const { return node_.output(i); }
  void result(OnnxValue value, int output = 0);  ///< sets what an output stands for
  /// Appends a node of the Graph under names(), whose output [N, C, H, W] or, of rank 2, [N, C] is this node's.
  void make(Node made, int rank);
  Network& network() { return network_; }

 private:
  const OnnxValue& reals(int i);
  const OnnxValue& images(int i);
  const OnnxValue& without_pad(int i);
  void check_no_bounds(int i, const OnnxValue& value) const;
  void check_no_factor(int i, const OnnxValue& value) const;
  const onnx::AttributeProto* find(const char* name);
  const onnx::AttributeProto* find(const char* name, onnx::AttributeProto::AttributeType type);

  const onnx::NodeProto& node_;
  Network& network_;
  std::set<std::string> taken_;
  std::optional<bool> channels_last_;  ///< of the activations that were read
};

}  // namespace octet
