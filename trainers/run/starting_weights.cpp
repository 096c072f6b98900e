// SPDX-License-Identifier: Apache-2.0
// The weights that a training starts from: random ones, those of an ONNX file or of another training. A first layer may
// begin as filters which whiten patches of the training images: what they give has no correlations and about the same
// variance in every direction, so that the layers behind it learn faster than from random filters (Page 2019, "How to
// train your ResNet 8: Bag of tricks", https://myrtle.ai/learn; Jordan 2024, arXiv 2404.00498).
#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/detect/decode.h"
#include "src/net/shapes.h"
#include "src/train/model/device.h"
#include "trainers/loop/batches.h"
#include "trainers/run/run.h"

namespace octet {
namespace {

constexpr size_t kWhitenImages = 2000;
constexpr int kWhitenBatch = 50;
constexpr int kPatchesAlong = 32;  // an image's side, at most about so many
constexpr double kFloor = 1e-2;    // added to each variance, as Page does
constexpr double kWeakest = 1e-4;  // of the largest variance

const Node& reader_of_images(const Graph& graph) {
  const Node* found = nullptr;
  for (const Node& node : graph.nodes) {
    if (std::find(node.inputs.begin(), node.inputs.end(), 0) == node.inputs.end()) continue;
    const bool usual =
        node.op == Op::conv2d && node.groups == 1 && node.window.dilation_h == 1 && node.window.dilation_w == 1;
    if (!usual || found != nullptr)
      throw usage_error(fmt::format(
          "model.whiten: '{}' reads the images, and nothing but one convolution without groups and dilation may; "
          "leave model.whiten out",
          node.name));
    found = &node;
  }
  const Shape& image = graph.nodes.front().shape;
  if (found->window.kernel_h > image.h || found->window.kernel_w > image.w)
    throw usage_error(fmt::format("model.whiten: the filters of '{}' are larger than the images ({}); leave it out",
                                  found->name, to_string(image)));
  return *found;
}

/// Returns the covariance of the layer's patches [C R S], over training images.
at::Tensor patch_covariance(const Run& run, const Node& layer) {
  const Window& w = layer.window;
  const Shape& image = run.graph.nodes.front().shape;
  const int64_t values = int64_t{image.c} * w.kernel_h * w.kernel_w;
  at::Tensor sum = at::zeros({values}, at::kDouble), products = at::zeros({values, values}, at::kDouble);
  int64_t count = 0;
  const int64_t step_h = std::max(1, image.h / kPatchesAlong), step_w = std::max(1, image.w / kPatchesAlong);
  for_inputs(run.data, *run.data.train_set,
             evenly_spaced(run.data.train, std::min(kWhitenImages, run.data.train.size())), kWhitenBatch, at::kCPU,
             [&](const at::Tensor& x) {
               throw_if_interrupted();
               const at::Tensor windows = x.unfold(2, w.kernel_h, step_h).unfold(3, w.kernel_w, step_w);
               const at::Tensor patches = windows.permute({0, 2, 3, 1, 4, 5}).reshape({-1, values}).to(at::kDouble);
               sum += patches.sum(0);
               products += patches.t().mm(patches);
               count += patches.size(0);
             });
  const at::Tensor mean = sum / count;
  return products / count - at::outer(mean, mean);
}

/// model.whiten: sets filters of the convolution that reads the images, in pairs of both signs, as a ReLU behind it
/// wants them: the principal directions of its patches of the training images, each divided by the deviation along it.
/// Filters that are left stay as they are. The weakest directions are left out: what 8 bits of an image round would
/// fill them. Throws Error(usage) if anything but one convolution reads the images.
void whiten_first_layer(Weights& weights, const Run& run) {
  const Node& layer = reader_of_images(run.graph);
  const c10::NoGradGuard no_grad;
  const at::Tensor weight = weights.at(layer.name + ".weight");                        // [K, C, R, S]
  const auto [variances, directions] = at::linalg_eigh(patch_covariance(run, layer));  // ascending; columns
  const auto variance = [&, all = variances](int64_t i) { return all[i].item<double>(); };
  const int64_t last = variances.numel() - 1, filters = weight.size(0);
  int64_t set = 0;
  for (int64_t i = last; i >= 0 && set + 2 <= filters && variance(i) > kWeakest * variance(last); --i) {
    const at::Tensor filter = directions.select(1, i) / std::sqrt(variance(i) + kFloor);
    weight[set++].copy_(filter.view(weight.sizes().slice(1)));
    weight[set++].copy_(-filter.view(weight.sizes().slice(1)));
  }
  say(fmt::format("model.whiten: {} of {} filters of {} whiten patches of training images", set, filters, layer.name));
}

/// Replaces the weights by those of the ONNX file, but for layers that begin anew.
void load_imported(Weights& weights, const Run& run) {
  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : run.onnx_weights->tensors) {
    const bool is_new = std::any_of(run.new_layers.begin(), run.new_layers.end(),
                                    [&](const std::string& layer) { return name.starts_with(layer + "."); });
    if (is_new) continue;
    weights.at(name).copy_(at::from_blob(const_cast<std::byte*>(tensor.bytes.data()), tensor.shape));
  }
}

/// Makes new last layers of a detector find nothing: weights of deviation 0.01, and biases with which objectness and
/// classes have a probability of 0.01 (Lin et al., Focal loss for dense object detection, arXiv 1708.02002,
/// section 4.1).
void begin_head(Weights& weights, const Run& run) {
  constexpr double kDeviation = 0.01, kProbability = 0.01;
  const BoxHead& head = run.data.detector->head;
  const c10::NoGradGuard no_grad;
  for (const BoxHead::Level& level : head.levels)
    for (const int place : {level.boxes, level.objectness, level.classes}) {
      const Node& layer = run.graph.nodes[run.graph.outputs[place]];
      at::Tensor& weight = weights.at(layer.name + ".weight");
      weight.mul_(kDeviation / weight.square().mean().sqrt());
      if (layer.bias && place != level.boxes)
        weights.at(layer.name + ".bias").fill_(std::log(kProbability / (1 - kProbability)));
    }
}

}  // namespace

Weights starting_weights(const Run& run) {
  Weights weights = initial_weights(run.graph, run.recipe.seed);
  if (run.data.detector) begin_head(weights, run);
  if (run.recipe.model.whiten) whiten_first_layer(weights, run);
  if (run.onnx_weights) load_imported(weights, run);
  if (!run.recipe.model.weights.empty()) {
    const LoadReport report = load_weights(weights, run.graph, run.recipe.model.weights, run.recipe.model.new_layers);
    // A network of the user may be a part of the one whose weights these are.
    const bool own = run.recipe.model.name == "graph" || run.recipe.model.name == "onnx";
    if (!own && run.recipe.model.new_layers.empty() && !report.unexpected.empty())
      throw data_error(fmt::format(
          "{}: {} no layer of {} uses, first '{}': these weights are another network's; name it in model.name",
          run.recipe.model.weights, counted(static_cast<long>(report.unexpected.size()), "tensor"),
          run.recipe.model.name, report.unexpected.front()));
    for (const std::string& name : report.unexpected)
      say(fmt::format("{}: unused '{}'", run.recipe.model.weights, name));
  }
  return to_device(weights, run.device);
}

}  // namespace octet
