// SPDX-License-Identifier: Apache-2.0
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <set>
#include <string_view>
#include <tuple>

#include "src/base/error.h"
#include "src/base/names.h"
#include "src/base/safetensors.h"
#include "src/net/import/pytorch_file.h"
#include "src/train/model/model.h"

namespace octet {
namespace {

using Kind = ParameterSpec::Kind;

std::vector<int64_t> sizes(const ParameterSpec& spec) { return {spec.shape.begin(), spec.shape.end()}; }

/// Returns the groups of each convolution by its weight's name, for its fan-out (outputs that one input value is part
/// of): K / groups * R * S.
std::map<std::string, int> groups_by_weight(const Graph& graph) {
  std::map<std::string, int> groups;
  for (const Node& node : graph.nodes)
    if (node.op == Op::conv2d) groups[node.name + ".weight"] = node.groups;
  return groups;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

/// Prefixes that DataParallel, torch.compile and Lightning put before a network's names.
constexpr std::array<std::string_view, 3> kWrappers = {"module.", "_orig_mod.", "model."};

/// Returns `name` without as many of these prefixes as make it a parameter's name; "" if none does.
std::string_view unwrapped(std::string_view name, const std::set<std::string_view>& parameters) {
  while (!parameters.contains(name)) {
    const auto wrapper = std::find_if(kWrappers.begin(), kWrappers.end(),
                                      [&](const std::string_view prefix) { return name.starts_with(prefix); });
    if (wrapper == kWrappers.end()) return "";
    name.remove_prefix(wrapper->size());
  }
  return name;
}

/// Returns the file's tensors by the names of the network's parameters, other tensors by their own names. Counters of
/// BatchNorm and of averages of weights are left out. If two names stand for one parameter, the one without prefix
/// wins.
std::map<std::string, const TensorData*> by_parameter(const TensorFile& file, const std::vector<ParameterSpec>& specs) {
  std::set<std::string_view> parameters;
  for (const ParameterSpec& spec : specs) parameters.insert(spec.name);
  std::map<std::string, const TensorData*> found;
  for (const auto& [name, data] : file.tensors)
    if (parameters.contains(name)) found[name] = &data;
  for (const auto& [name, data] : file.tensors) {
    if (parameters.contains(name) || name.ends_with("num_batches_tracked") || name == "n_averaged") continue;
    std::string plain(unwrapped(name, parameters));
    // torchvision's networks of segmentation call the features of a classifier their backbone.
    if (constexpr std::string_view kFeatures = "features."; plain.empty() && name.starts_with(kFeatures))
      plain = unwrapped("backbone." + name.substr(kFeatures.size()), parameters);
    if (plain.empty() || !found.emplace(plain, &data).second) found[name] = &data;
  }
  return found;
}

/// Whether a weight is that of YOLOX's Focus, [K, 4C, R, S], where the network has the convolution [K, C, 2R, 2S] with
/// stride 2 that computes the same.
bool is_focus(const std::string& name, const std::vector<int64_t>& shape, const std::vector<int64_t>& wanted) {
  return name.ends_with("stem.conv.conv.weight") && shape.size() == 4 && wanted.size() == 4 &&
         std::vector<int64_t>{shape[0], shape[1] / 4, 2 * shape[2], 2 * shape[3]} == wanted && shape[1] % 4 == 0;
}

/// Returns the weight of Focus as that convolution's. Its channels are those of the pixels at the upper left, lower
/// left, upper right and lower right of each 2x2: those at (dy, dx) begin at channel (2 dx + dy) C.
TensorData from_focus(const TensorData& focus, const std::vector<int64_t>& wanted) {
  const std::vector<float> values = to_float(focus);
  const at::Tensor quarters = at::from_blob(const_cast<float*>(values.data()),
                                            {wanted[0], 2, 2, wanted[1], focus.shape[2], focus.shape[3]}, at::kFloat);
  // From [K, dx, dy, C, R, S] to [K, C, R, dy, S, dx].
  const at::Tensor weight = quarters.permute({0, 3, 4, 2, 5, 1}).contiguous();
  return float_tensor(wanted, weight.const_data_ptr<float>());
}

std::string list(const std::string& title, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += "\n  " + title + " " + name;
  return text;
}

/// Whether a parameter, "fc.weight", belongs to one of these layers, names with * and ?.
bool is_new(const std::string& parameter, const std::vector<std::string>& new_layers) {
  const std::string layer = parameter.substr(0, parameter.rfind('.'));
  return std::any_of(new_layers.begin(), new_layers.end(),
                     [&](const std::string& name) { return glob_distance(name, layer) == 0; });
}

/// Refuses a name that no layer with parameters has.
void require_layers(const Graph& graph, const std::vector<std::string>& new_layers) {
  const std::vector<ParameterSpec> all = parameters(graph);
  for (const std::string& name : new_layers)
    if (std::none_of(all.begin(), all.end(), [&](const ParameterSpec& spec) { return is_new(spec.name, {name}); }))
      throw usage_error("model.new_layers: '" + name + "' is no layer of '" + graph.name + "' that has weights");
}

}  // namespace

Weights initial_weights(const Graph& graph, uint64_t seed) {
  const c10::NoGradGuard no_grad;
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const std::map<std::string, int> groups = groups_by_weight(graph);
  Weights weights;
  double linear_bound = 0;  // of the linear whose bias comes next
  for (const ParameterSpec& spec : parameters(graph)) {
    at::Tensor t = at::empty(sizes(spec), at::kFloat);
    switch (spec.kind) {
      case Kind::conv_weight: {
        const double fan_out = static_cast<double>(t.size(0)) / groups.at(spec.name) * t.size(2) * t.size(3);
        t.normal_(0, std::sqrt(2.0 / fan_out), generator);
        linear_bound = 0;
        break;
      }
      case Kind::linear_weight:
        linear_bound = 1 / std::sqrt(static_cast<double>(t.size(1)));
        t.uniform_(-linear_bound, linear_bound, generator);
        break;
      case Kind::bias:
        if (linear_bound > 0)
          t.uniform_(-linear_bound, linear_bound, generator);
        else
          t.zero_();
        break;
      case Kind::slope:
        t.fill_(0.25);  // PyTorch's default
        break;
      case Kind::bn_weight:
      case Kind::bn_var:
        t.fill_(1);
        break;
      case Kind::bn_bias:
      case Kind::bn_mean:
        t.zero_();
        break;
    }
    if (spec.trainable()) t.requires_grad_(true);
    weights.emplace(spec.name, t);
  }
  return weights;
}

Weights copies_of(const Weights& weights, std::optional<at::Device> device) {
  Weights result;
  for (const auto& [name, tensor] : weights) {
    const at::TensorOptions there = tensor.options().device(device.value_or(tensor.device()));
    result.emplace(name, tensor.detach().to(there, /*non_blocking=*/false, /*copy=*/true));
  }
  return result;
}

LoadReport load_weights(Weights& weights, const Graph& graph, const std::string& path,
                        const std::vector<std::string>& new_layers) {
  const TensorFile file = read_weights_file(path);
  std::map<std::string, const TensorData*> found = by_parameter(file, parameters(graph));
  require_layers(graph, new_layers);
  std::erase_if(found, [&](const auto& entry) { return is_new(entry.first, new_layers); });

  LoadReport report;
  std::deque<TensorData> rearranged;
  std::vector<std::tuple<std::string, at::Tensor*, const TensorData*>> fitting;  // copied only when all fit
  for (const ParameterSpec& spec : parameters(graph)) {
    if (is_new(spec.name, new_layers)) continue;
    const auto it = found.find(spec.name);
    if (it == found.end()) {
      report.missing.push_back(spec.name);
      continue;
    }
    if (is_focus(spec.name, it->second->shape, sizes(spec)))
      it->second = &rearranged.emplace_back(from_focus(*it->second, sizes(spec)));
    if (it->second->shape != sizes(spec))
      report.misshaped.push_back(spec.name + " is " + shape_text(it->second->shape) + ", the network needs " +
                                 shape_text(sizes(spec)));
    else
      fitting.emplace_back(spec.name, &weights.at(spec.name), it->second);
    found.erase(it);
  }
  for (const auto& [name, data] : found) report.unexpected.push_back(name);
  const auto of_batch_norm = [](const std::string& name) { return name.ends_with(".running_mean"); };
  if (has_folded_batch_norm(file) && std::any_of(report.missing.begin(), report.missing.end(), of_batch_norm))
    throw data_error(path + ": BatchNorm is folded into these convolutions, and the network '" + graph.name +
                     "' has it: set model.folded: true");
  if (!report.missing.empty() || !report.misshaped.empty())
    throw data_error(
        path + ": these weights do not fit the network '" + graph.name + "':" + list("missing:", report.missing) +
        list("wrong shape:", report.misshaped) + list("unexpected:", report.unexpected) +
        "\nUse the model, number of classes and shortcut that the file was trained with, or name layers that "
        "are to begin at random in model.new_layers.");
  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor, data] : fitting) require_usable_weights(path, name, *data);
  for (const auto& [name, tensor, data] : fitting) {
    const std::vector<float> values = to_float(*data);
    tensor->copy_(at::from_blob(const_cast<float*>(values.data()), data->shape, at::kFloat));
  }
  return report;
}

void save_weights(const Weights& weights, const std::string& path) {
  TensorFile file;
  for (const auto& [name, tensor] : weights) {
    const at::Tensor plain = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
    file.tensors.emplace(name, float_tensor(plain.sizes().vec(), plain.const_data_ptr<float>()));
  }
  write_safetensors(path, file);
}

}  // namespace octet
