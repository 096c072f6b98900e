// SPDX-License-Identifier: Apache-2.0
// The float network, the float simulation and the forward pass of QAT as Programs.
#include "src/train/proof/torch_program.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "src/base/error.h"
#include "src/engine/support.h"
#include "src/train/model/device.h"
#include "src/train/proof/exact_operators.h"
#include "src/train/qat/quantized_model.h"

namespace octet {

void TorchProgram::run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap) try {
  check_outputs(outputs, graph().outputs.size());
  const c10::NoGradGuard no_grad;
  std::optional<FullPrecision> full_precision;
  if (full_precision_) full_precision.emplace();
  const std::vector<at::Tensor> values = forward({images, batch, graph().nodes[0].shape}, tap);
  for (size_t i = 0; i < values.size(); ++i) {
    const at::Tensor bytes = to_host(values[i].permute({0, 2, 3, 1}));
    std::memcpy(outputs[i], bytes.const_data_ptr(), bytes.nbytes());
  }
} catch (const c10::OutOfMemoryError& error) {
  throw promise_error(fmt::format("{}: {} images at once do not fit on the GPU; set evaluate.batch_size lower ({})",
                                  what_, batch, error.what_without_backtrace()));
} catch (const c10::Error& error) {
  throw promise_error(fmt::format("{}: {}", what_, error.what_without_backtrace()));
}

void show(int node, const at::Tensor& output, const NodeTap& tap) {
  const at::Tensor bytes = to_host(output.permute({0, 2, 3, 1}));
  tap(node, bytes.const_data_ptr(), bytes.nbytes());
}

at::Tensor unflatten(const Graph& graph, int node, const at::Tensor& x) {
  const Node& n = graph.nodes[node];
  if (n.op != Op::flatten) return x;
  const Shape& from = graph.nodes[n.inputs[0]].shape;
  return x.reshape({x.size(0), from.c, from.h, from.w});
}

namespace {

std::vector<LayerInfo> aten_layers(const Graph& graph) {
  std::vector<LayerInfo> infos;
  for (const Node& node : graph.nodes) infos.push_back({node.name, "aten_" + std::string(op_name(node.op))});
  return infos;
}

/// Collects the graph's outputs during a walk.
class Outputs {
 public:
  explicit Outputs(const Graph& graph) : graph_(graph), values_(graph.outputs.size()) {}

  bool wants(int node) const { return place(node) < values_.size(); }
  void keep(int node, const at::Tensor& value) { values_[place(node)] = value; }
  std::vector<at::Tensor> take() { return std::move(values_); }

 private:
  size_t place(int node) const {
    return static_cast<size_t>(std::find(graph_.outputs.begin(), graph_.outputs.end(), node) - graph_.outputs.begin());
  }

  const Graph& graph_;
  std::vector<at::Tensor> values_;
};

class FloatProgram : public TorchProgram {
 public:
  FloatProgram(Graph graph, Weights weights, Preprocessing preprocessing)
      : TorchProgram("the float network"),
        graph_(std::move(graph)),
        weights_(std::move(weights)),
        preprocessing_(std::move(preprocessing)) {}

  std::vector<LayerInfo> layers() const override { return aten_layers(graph_); }

 protected:
  std::vector<at::Tensor> forward(const Images& images, const NodeTap&) override {
    const at::Tensor x = images_to_tensor(images, preprocessing_.mean, preprocessing_.std, device_of(weights_));
    Outputs outputs(graph_);
    WalkHooks hooks;
    hooks.output = [&](int n, at::Tensor y) {
      if (outputs.wants(n)) outputs.keep(n, unflatten(graph_, n, y.to(at::kFloat)));
      return y;
    };
    walk(graph_, weights_, x, {}, hooks);
    return outputs.take();
  }
  const Graph& graph() const override { return graph_; }

 private:
  Graph graph_;
  Weights weights_;
  Preprocessing preprocessing_;
};

/// The simulation or, with `trained_in`, the forward pass that QAT in this precision trains through.
class SimulationProgram : public TorchProgram {
 public:
  SimulationProgram(const QuantizedModel& model, Preprocessing preprocessing, std::optional<Precision> trained_in)
      : TorchProgram(trained_in ? "the forward pass of QAT" : "the simulation", /*full_precision=*/!trained_in),
        model_(model),
        preprocessing_(std::move(preprocessing)),
        trained_in_(trained_in) {}

  std::vector<LayerInfo> layers() const override { return aten_layers(graph()); }

 protected:
  std::vector<at::Tensor> forward(const Images& images, const NodeTap& tap) override {
    const at::Device device = device_of(model_.weights());
    std::optional<Autocast> autocast;
    if (trained_in_) autocast.emplace(device.type(), *trained_in_);
    const at::Tensor x = images_to_tensor(images, preprocessing_.mean, preprocessing_.std, device);
    const std::vector<QParams> edges = model_.edges();
    Outputs outputs(graph());
    model_.forward(x, {}, [&](int n, const at::Tensor& value) {
      if (!tap && !outputs.wants(n)) return;
      const at::Tensor y = unflatten(graph(), n, value.to(at::kFloat));
      // A dequantized value divided by its scale is within a rounding of its code: quantize() finds it.
      const at::Tensor stored = model_.prepared().float_output(n) ? y : quantize_values(edges[n], y);
      if (tap) show(n, stored, tap);
      if (outputs.wants(n)) outputs.keep(n, stored);
    });
    return outputs.take();
  }
  const Graph& graph() const override { return model_.prepared().graph; }

 private:
  QuantizedModel model_;
  Preprocessing preprocessing_;
  std::optional<Precision> trained_in_;
};

}  // namespace

std::unique_ptr<Program> float_program(const Graph& graph, const Weights& weights, const Preprocessing& preprocessing) {
  return std::make_unique<FloatProgram>(graph, weights, preprocessing);
}

std::unique_ptr<Program> simulation_program(const QuantizedModel& model, const Preprocessing& preprocessing) {
  return std::make_unique<SimulationProgram>(model, preprocessing, std::nullopt);
}

std::unique_ptr<Program> trained_forward_program(const QuantizedModel& model, const Preprocessing& preprocessing,
                                                 Precision precision) {
  return std::make_unique<SimulationProgram>(model, preprocessing, precision);
}

}  // namespace octet
