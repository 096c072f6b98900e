// SPDX-License-Identifier: Apache-2.0
// The definition as an engine: every node by its kernel's reference implementation, one image a task.
#include <cstring>
#include <utility>

#include "kernels/operators/lookup.h"
#include "src/base/threads.h"
#include "src/engine/lowering.h"
#include "src/engine/memory_plan.h"
#include "src/engine/support.h"

namespace octet {
namespace {

int dense(int channels) { return channels; }

/// Runs node after node in one arena without gaps between pixels.
class ReferenceProgram final : public Program {
 public:
  ReferenceProgram(Int8Graph graph, const CompileOptions& options)
      : graph_(std::move(graph)), max_batch_(options.max_batch), pool_(options.threads) {
    std::vector<size_t> bytes;
    for (const Int8Node& node : graph_.nodes) {
      image_bytes_.push_back(node.image_bytes());
      bytes.push_back(image_bytes_.back() * max_batch_);
      buffer_.push_back(node.op == Int8Op::flatten ? buffer_[node.inputs[0]] : static_cast<int>(buffer_.size()));
    }
    plan_ = plan_memory(lifetimes(graph_, bytes, buffer_));
    arena_ = AlignedBuffer(plan_.bytes);
    for (int channel = 0; channel < graph_.input_shape().c; ++channel) {
      const std::vector<uint8_t> table = input_table(graph_, channel);
      input_tables_.insert(input_tables_.end(), table.begin(), table.end());
    }
  }

  void run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap) override {
    check_run(batch, max_batch_, outputs, graph_.outputs.size());
    const int nodes = static_cast<int>(graph_.nodes.size());
    for (int node = 0; node < nodes; ++node) {
      pool_.run(batch, [&](int image, int) { run_node(node, image, images); });
      if (tap) tap(node, output(node, 0), image_bytes_[node] * batch);
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const int node = graph_.outputs[i];
      std::memcpy(outputs[i], output(node, 0), image_bytes_[node] * batch);
    }
  }

  std::vector<LayerInfo> layers() const override {
    std::vector<LayerInfo> layers;
    for (const Int8Node& node : graph_.nodes)
      layers.push_back({node.name, std::string(int8_op_name(node.op)) + "_reference"});
    return layers;
  }

  size_t arena_bytes() const override { return arena_.bytes(); }

 private:
  uint8_t* output(int node, int image) const {
    return arena_.data() + plan_.offsets[buffer_[node]] + image_bytes_[node] * image;
  }

  void run_node(int node, int image, const uint8_t* images) const {
    const Int8Node& n = graph_.nodes[node];
    const Lowering lowering{graph_, dense};
    uint8_t* y = output(node, image);
    const auto x = [&](size_t input) { return output(n.inputs[input], image); };
    switch (n.op) {
      case Int8Op::input:
        kernels::quantize_image({n.shape.c, n.shape.c}, {0, n.shape.h * n.shape.w}, input_tables_.data(),
                                images + n.shape.elements() * image, y);
        return;
      case Int8Op::conv2d:
      case Int8Op::linear:
        kernels::conv2d_int8_reference(lowering.conv2d_shape(node), lowering.conv2d_params(node),
                                       lowering.conv2d_weights(node), x(0), n.inputs.size() > 1 ? x(1) : nullptr, y);
        return;
      case Int8Op::add:
        kernels::add_int8_reference(lowering.elementwise_shape(node, 0), lowering.add_params(node), x(0), x(1), y);
        return;
      case Int8Op::mul:
        kernels::mul_int8_reference(lowering.mul_shape(node), lowering.mul_params(node), x(0), x(1), y);
        return;
      case Int8Op::requantize:
      case Int8Op::concat:
        for (size_t input = 0, channel = 0; input < n.inputs.size(); ++input) {
          kernels::requantize_int8_reference(lowering.elementwise_shape(node, input),
                                             lowering.requantize_params(node, input), x(input),
                                             y + channel * (n.float_output ? sizeof(float) : 1));
          channel += lowering.input(node, input).shape.c;
        }
        return;
      case Int8Op::max_pool:
        kernels::max_pool_int8_reference(lowering.pool_shape(node), lowering.max_pool_params(node), x(0), y);
        return;
      case Int8Op::avg_pool:
      case Int8Op::global_avg_pool:
        kernels::avg_pool_int8_reference(lowering.pool_shape(node), lowering.avg_pool_params(node), x(0), y);
        return;
      case Int8Op::resize_bilinear:
        kernels::bilinear_int8_reference(lowering.bilinear_shape(node), lowering.bilinear_params(node), x(0), y);
        return;
      case Int8Op::matmul:
        kernels::matmul_int8_reference(lowering.matmul_shape(node), lowering.matmul_params(node), x(0), x(1), y);
        return;
      case Int8Op::softmax:
        kernels::softmax_int8_reference(lowering.softmax_shape(node), lowering.softmax_params(node), x(0), y);
        return;
      case Int8Op::prelu:
        kernels::prelu_int8_reference(lowering.elementwise_shape(node, 0), lowering.prelu_params(node),
                                      lowering.prelu_slopes(node).data(), x(0), y);
        return;
      case Int8Op::subsample_pad:
        kernels::subsample_pad_int8(lowering.subsample_pad_shape(node), lowering.subsample_pad_params(node), x(0), y);
        return;
      case Int8Op::slice:
      case Int8Op::resize:
      case Int8Op::channel_shuffle:
      case Int8Op::depth_to_space:
        kernels::pick_int8(lowering.pick_shape(node), {0, n.shape.h}, x(0), y);
        return;
      case Int8Op::lookup:
        if (n.groups > 1) {
          kernels::channel_lookup_int8(n.table.data(), n.groups, x(0), n.shape.elements(), y);
        } else {
          kernels::lookup_int8_reference(lowering.lookup_table(node), x(0), n.shape.elements(), y);
        }
        return;
      case Int8Op::flatten:
        return;  // shares its input's memory
    }
    throw no_step(n, "reference");
  }

  Int8Graph graph_;
  int max_batch_;
  ThreadPool pool_;
  std::vector<size_t> image_bytes_;  // one image's output of each node
  std::vector<int> buffer_;          // the node whose memory holds each node's output
  MemoryPlan plan_;
  AlignedBuffer arena_;
  std::vector<uint8_t> input_tables_;  // [channels, 256]
};

class ReferenceEngine final : public Engine {
 public:
  std::string_view name() const override { return "reference"; }
  Support available() const override { return {true, ""}; }
  std::unique_ptr<Program> compile(const Int8Graph& graph, const CompileOptions& options) const override {
    check(graph, options);
    return std::make_unique<ReferenceProgram>(graph, options);
  }
};

}  // namespace

const Engine& reference_engine() {
  static const ReferenceEngine engine;
  return engine;
}

}  // namespace octet
