// SPDX-License-Identifier: Apache-2.0
// A first layer that begins as filters which whiten patches of the training images: what they give has no correlations
// and about the same variance in every direction, so that the layers behind it learn faster than from random filters
// (Page 2019, "How to train your ResNet 8: Bag of tricks", https://myrtle.ai/learn; Jordan 2024, arXiv 2404.00498).
#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/net/shapes.h"
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

}  // namespace

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

}  // namespace octet
