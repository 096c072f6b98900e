// An ONNX model while it is written: nodes in order, constants, one input "images", outputs by name.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "onnx.pb.h"
#include "src/graph/graph.h"
#include "src/graph/int8_graph.h"

namespace octet {

inline constexpr const char* kImages = "images";
inline constexpr const char* kLogits = "logits";

class OnnxWriter {
 public:
  OnnxWriter(const std::string& name, const Shape& input, int opset);

  // Names are made unique: what is called `stem` is told by the answer.
  std::string floats(const std::string& stem, const std::vector<int64_t>& shape, const float* values);
  std::string codes(const std::string& stem, const std::vector<int64_t>& shape, const std::vector<int8_t>& values);
  std::string int32s(const std::string& stem, const std::vector<int32_t>& values);
  std::string int64s(const std::string& stem, const std::vector<int64_t>& values);
  std::string scalar(const std::string& stem, float value);
  std::string zero_point(const std::string& stem, int32_t code, bool is_signed);

  /// Appends a node called `name`, whose output is called the same.
  std::string node(const std::string& op, const std::string& name, const std::vector<std::string>& inputs);
  // Attributes of the node appended last.
  void attribute(const char* name, int64_t value);
  void real_attribute(const char* name, double value);
  void attribute(const char* name, const std::vector<int64_t>& values);
  void text_attribute(const char* name, const std::string& value);

  /// kernel_shape, strides, pads and, for convolutions, dilations.
  void window(const Window& window, bool dilations);

  /// [N, C] as a picture [N, C, 1, 1].
  std::string pixel(const std::string& name, const std::string& row);
  /// What a node of the graph reads, of `edges` by node; [N, C] becomes a picture beside pictures. `rows`: find_rows()
  std::vector<std::string> inputs(const std::string& name, const std::vector<int>& nodes, bool row,
                                  const std::vector<std::string>& edges, const std::vector<bool>& rows);
  std::string flatten(const std::string& name, const std::string& x);
  std::string concat(const std::string& name, const std::vector<std::string>& x);  ///< of channels
  std::string max_pool(const std::string& name, const std::string& x, const Window& window);
  std::string avg_pool(const std::string& name, const std::string& x,
                       const Window& window);  ///< zeros of the pad count
  /// Channels from `first` on.
  std::string slice(const std::string& name, const std::string& x, int first, int channels);
  /// Groups of channels take turns.
  std::string channel_shuffle(const std::string& name, const std::string& x, const Shape& shape, int groups);
  /// Of pictures in heads, times `scale`; which product: Op::matmul.
  std::string matmul(const std::string& name, const std::vector<std::string>& x, const std::vector<Shape>& shapes,
                     int heads, bool transposed, float scale);
  /// Over the channels of each group.
  std::string softmax(const std::string& name, const std::string& x, const Shape& shape, int groups);
  /// So many times as high and wide: every pixel repeated, or bilinear with half-pixel centres.
  std::string resize(const std::string& name, const std::string& x, int factor_h, int factor_w, bool bilinear);

  /// Every stride-th pixel, and channels of zeros on both sides.
  std::string subsample_pad(const std::string& name, const std::string& x, const Window& window, int extra_channels);

  int opset() const { return static_cast<int>(model_.opset_import(0).version()); }

  /// What the graph's `outputs` are called: the only one "logits", several as their nodes. Of one pixel each is [N, C],
  /// of more [N, C, H, W]. `edges`, `rows`: of the graph's nodes.
  template <typename AnyGraph>
  void outputs(const AnyGraph& graph, const std::vector<std::string>& edges, const std::vector<bool>& rows) {
    std::vector<Output> all;
    for (const int index : graph.outputs) {
      const auto at = static_cast<size_t>(index);
      const auto& node = graph.nodes[at];
      all.push_back({graph.outputs.size() == 1 ? kLogits : node.name, edges[at], node.shape, rows[at]});
    }
    name_outputs(std::move(all));
  }

  /// The file's bytes.
  std::string finish(const Preprocessing& preprocessing, const std::vector<std::string>& class_names);

 private:
  std::string heads(const std::string& name, const std::string& x, const Shape& shape, int heads);
  std::string picture(const std::string& name, const std::string& x, const Shape& shape);
  struct Output {
    std::string name, value;
    Shape shape;
    bool row;
  };
  void name_outputs(std::vector<Output> all);
  std::string fresh(std::string name);
  std::string constant(const std::string& stem, int type, const std::vector<int64_t>& shape, const void* data,
                       size_t size);

  onnx::ModelProto model_;
  std::set<std::string> names_ = {kImages, kLogits};
};

}  // namespace octet
