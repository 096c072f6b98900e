// SPDX-License-Identifier: Apache-2.0
// Small ONNX models, made by the tests themselves. protobuf's headers stay in the .cpp: LibTorch brings headers of the
// same names, of another version.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace onnx {
class ModelProto;
class NodeProto;
}  // namespace onnx

namespace octet::test {

/// A node whose attributes are set one after the other.
class NodeBuilder {
 public:
  explicit NodeBuilder(onnx::NodeProto& node) : node_(node) {}
  NodeBuilder& named(const std::string& name);
  NodeBuilder& domain(const std::string& domain);
  NodeBuilder& ints(const std::string& name, const std::vector<int64_t>& values);
  NodeBuilder& integer(const std::string& name, int64_t value);
  NodeBuilder& real(const std::string& name, float value);
  NodeBuilder& text(const std::string& name, const std::string& value);
  NodeBuilder& value(int64_t value);             ///< a tensor of one integer, as ConstantOfShape has it
  NodeBuilder& output(const std::string& name);  ///< one more

 private:
  onnx::NodeProto& node_;
};

/// One graph with the input "image" [N, C, H, W]; weights are random.
class ModelBuilder {
 public:
  explicit ModelBuilder(const std::vector<int64_t>& image = {3, 8, 8}, int opset = 17);
  ~ModelBuilder();
  ModelBuilder(ModelBuilder&&) noexcept;

  /// Uniform in [low, high); returns them. Every second one is written number by number, not as raw bytes.
  std::vector<float> weight(const std::string& name, const std::vector<int64_t>& shape, float low = -1, float high = 1);
  void integers(const std::string& name, const std::vector<int64_t>& values);
  void integer(const std::string& name, int64_t value);  ///< a scalar
  void scalar(const std::string& name, float value);
  void reals(const std::string& name, const std::vector<float>& values);
  void codes(const std::string& name, const std::vector<int>& values, bool is_signed);  ///< one: a scalar

  NodeBuilder node(const std::string& op, const std::vector<std::string>& inputs, const std::string& output);

  /// A node of the image and `constant` before all others, which read it in the image's place.
  void prepend(const std::string& op, const std::string& constant);
  void leave_size_open();  ///< height by a name, width without one

  /// The file, whose output is `output`, or several.
  std::string bytes(const std::string& output) { return bytes(std::vector<std::string>{output}); }
  std::string bytes(const std::vector<std::string>& outputs);
  onnx::ModelProto& model() { return *model_; }

 private:
  std::unique_ptr<onnx::ModelProto> model_;
  std::mt19937 random_{5};
};

/// Returns the names of a file's first input and output.
std::pair<std::string, std::string> ends_of(const std::string& file);

}  // namespace octet::test
