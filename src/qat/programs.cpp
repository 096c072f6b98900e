// The float network, the float simulation and the forward pass of QAT as Programs.

#include <algorithm>
#include <string>
#include <utility>

#include "src/model/device.h"
#include "src/qat/quantized_model.h"
#include "src/qat/requantize.h"
#include "src/qat/torch_program.h"
#include "src/qat/trained_forward.h"

namespace octet {
namespace {

std::vector<LayerInfo> aten_layers(const Graph& graph) {
  std::vector<LayerInfo> infos;
  for (const Node& node : graph.nodes) infos.push_back({node.name, "aten_" + std::string(op_name(node.op))});
  return infos;
}

/// Looks at every node of a walk and keeps the graph's outputs.
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
  std::vector<at::Tensor> forward(const Pictures& pictures, const NodeTap&) override {
    const at::Tensor x = images_to_tensor(pictures, preprocessing_.mean, preprocessing_.std, device_of(weights_));
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

class SimulationProgram : public TorchProgram {
 public:
  SimulationProgram(const QuantizedModel& model, Preprocessing preprocessing)
      : SimulationProgram("the simulation", /*full_precision=*/true, model, std::move(preprocessing)) {}

  std::vector<LayerInfo> layers() const override { return aten_layers(graph()); }

 protected:
  SimulationProgram(std::string what, bool full_precision, const QuantizedModel& model, Preprocessing preprocessing)
      : TorchProgram(std::move(what), full_precision), model_(model), preprocessing_(std::move(preprocessing)) {}

  std::vector<at::Tensor> forward(const Pictures& pictures, const NodeTap& tap) override {
    const at::Tensor x =
        images_to_tensor(pictures, preprocessing_.mean, preprocessing_.std, device_of(model_.weights()));
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
};

class TrainedForwardProgram final : public SimulationProgram {
 public:
  TrainedForwardProgram(const QuantizedModel& model, Preprocessing preprocessing, Precision precision)
      : SimulationProgram("the forward pass of QAT", /*full_precision=*/false, model, std::move(preprocessing)),
        device_(device_of(model.weights()).type()),
        precision_(precision) {}

 protected:
  std::vector<at::Tensor> forward(const Pictures& pictures, const NodeTap& tap) override {
    const Autocast autocast(device_, precision_);
    return SimulationProgram::forward(pictures, tap);
  }

 private:
  at::DeviceType device_;
  Precision precision_;
};

}  // namespace

std::unique_ptr<Program> float_program(const Graph& graph, const Weights& weights, const Preprocessing& preprocessing) {
  return std::make_unique<FloatProgram>(graph, weights, preprocessing);
}

std::unique_ptr<Program> simulation_program(const QuantizedModel& model, const Preprocessing& preprocessing) {
  return std::make_unique<SimulationProgram>(model, preprocessing);
}

std::unique_ptr<Program> trained_forward_program(const QuantizedModel& model, const Preprocessing& preprocessing,
                                                 Precision precision) {
  return std::make_unique<TrainedForwardProgram>(model, preprocessing, precision);
}

}  // namespace octet
