// One node of an ONNX file: its inputs and attributes, taken one by one; what nobody took is refused.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "src/onnx/network.h"

namespace octet {

class NodeReader {
 public:
  NodeReader(const onnx::NodeProto& node, Network& network) : node_(node), network_(network) {}

  const std::string& op() const { return node_.op_type(); }
  int opset() const { return network_.file().opset; }
  std::string label() const;  ///< "node 'conv1' (Conv)"
  [[noreturn]] void fail(const std::string& what) const;

  int inputs() const { return node_.input_size(); }
  bool has_input(int i) const { return i < node_.input_size() && !node_.input(i).empty(); }
  const OnnxValue& input(int i);                ///< either kind
  const OnnxValue& activation(int i);           ///< with nothing that waits; fails for a constant
  const OnnxValue& window_input(int i);         ///< the same, with padding
  const OnnxValue& scaled_input(int i);         ///< the same, with a factor and a shift, without padding
  const OnnxValue& bounded_input(int i);        ///< the same, with bounds alone
  const OnnxValue& head_input(int i);           ///< an activation in heads or not, with a factor and a shift
  const Constant& constant(int i);              ///< fails for an activation, NaN and infinity
  const Constant& bound(int i);                 ///< the same, which may be infinite
  const Constant& weights(int i, size_t rank);  ///< float32, every dimension in 1..kMaxDimension
  std::vector<int64_t> integers_input(int i);   ///< a constant of integers, at most of rank 1
  bool all_constant();                          ///< whether every input is
  int readers(int i) const;                     ///< nodes that read what input i names

  bool has(const char* name) { return find(name) != nullptr; }
  int64_t integer(const char* name, int64_t fallback);
  float real(const char* name, float fallback);
  std::string text(const char* name, const std::string& fallback);
  std::vector<int64_t> integers(const char* name, std::vector<int64_t> fallback);
  const onnx::AttributeProto* attribute(const char* name) { return find(name); }
  void done();  ///< fails for an attribute nobody asked for

  /// Names for a node of the Graph: of the PyTorch module whose weight input i is, the node's, the output's.
  std::vector<std::string> names(int weight_input = -1) const;
  const std::string& name_of_input(int i) const { return node_.input(i); }

  int outputs() const { return node_.output_size(); }
  const std::string& name_of_output(int i) const { return node_.output(i); }
  void result(OnnxValue value, int output = 0);  ///< what an output stands for
  Network& network() { return network_; }

 private:
  const OnnxValue& reals(int i);
  const OnnxValue& pictures(int i);
  void check_no_pad(const OnnxValue& value) const;
  void check_no_bounds(int i, const OnnxValue& value) const;
  void check_no_factor(int i, const OnnxValue& value) const;
  const onnx::AttributeProto* find(const char* name);
  const onnx::AttributeProto* find(const char* name, onnx::AttributeProto::AttributeType type);

  const onnx::NodeProto& node_;
  Network& network_;
  std::set<std::string> taken_;
};

}  // namespace octet
