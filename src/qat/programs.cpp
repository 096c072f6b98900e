// The float network and the float simulation as Programs.

#include <c10/core/GradMode.h>

#include <cstring>
#include <string>

#include "src/common/error.h"
#include "src/qat/fake_quantize.h"
#include "src/qat/quantized_model.h"

namespace octet {
namespace {

void copy_logits(const at::Tensor& logits, float* out) {
  const at::Tensor plain = logits.to(at::kFloat).contiguous();
  std::memcpy(out, plain.const_data_ptr(), plain.nbytes());
}

std::vector<LayerInfo> aten_layers(const Graph& graph) {
  std::vector<LayerInfo> infos;
  for (const Node& node : graph.nodes) infos.push_back({node.name, "aten_" + std::string(op_name(node.op))});
  return infos;
}

class FloatProgram : public Program {
 public:
  FloatProgram(Graph graph, Weights weights, Preprocessing preprocessing)
      : graph_(std::move(graph)), weights_(std::move(weights)), preprocessing_(std::move(preprocessing)) {}

  void run(const uint8_t* images, int batch, float* logits, const NodeTap& tap) override {
    const c10::NoGradGuard no_grad;
    const at::Tensor x =
        images_to_tensor(images, batch, graph_.nodes[0].shape, preprocessing_.mean, preprocessing_.std);
    copy_logits(walk(graph_, weights_, x, {}), logits);
  }
  std::vector<LayerInfo> layers() const override { return aten_layers(graph_); }
  size_t arena_bytes() const override { return 0; }  // LibTorch's allocator, nothing planned

 private:
  Graph graph_;
  Weights weights_;
  Preprocessing preprocessing_;
};

class SimulationProgram : public Program {
 public:
  SimulationProgram(const QuantizedModel& model, Preprocessing preprocessing)
      : model_(model), preprocessing_(std::move(preprocessing)) {}

  void run(const uint8_t* images, int batch, float* logits, const NodeTap& tap) override {
    const c10::NoGradGuard no_grad;
    const at::Tensor x = images_to_tensor(images, batch, model_.prepared().graph.nodes[0].shape, preprocessing_.mean,
                                          preprocessing_.std);
    QuantizedModel::Look look;
    if (tap) look = [&](int node, const at::Tensor& value) { show(node, value, tap); };
    copy_logits(model_.forward(x, {}, look), logits);
  }
  std::vector<LayerInfo> layers() const override { return aten_layers(model_.prepared().graph); }
  size_t arena_bytes() const override { return 0; }

 private:
  /// A dequantized value divided by its scale is within a rounding of its code: quantize() finds it.
  void show(int n, const at::Tensor& value, const NodeTap& tap) const {
    const Graph& graph = model_.prepared().graph;
    at::Tensor x = value;
    if (graph.nodes[n].op == Op::flatten) {  // engines keep HWC order
      const Shape& from = graph.nodes[graph.nodes[n].inputs[0]].shape;
      x = x.view({x.size(0), from.c, from.h, from.w});
    }
    x = x.contiguous(at::MemoryFormat::ChannelsLast);
    if (model_.prepared().float_output(n)) return tap(n, x.const_data_ptr(), x.nbytes());
    const QParams q = model_.edges()[n];
    const float* data = x.const_data_ptr<float>();
    std::vector<uint8_t> codes(x.numel());
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(quantize(data[i], q));
    tap(n, codes.data(), codes.size());
  }

  QuantizedModel model_;
  Preprocessing preprocessing_;
};

}  // namespace

std::unique_ptr<Program> float_program(const Graph& graph, const Weights& weights, const Preprocessing& preprocessing) {
  return std::make_unique<FloatProgram>(graph, weights, preprocessing);
}

std::unique_ptr<Program> simulation_program(const QuantizedModel& model, const Preprocessing& preprocessing) {
  return std::make_unique<SimulationProgram>(model, preprocessing);
}

}  // namespace octet
