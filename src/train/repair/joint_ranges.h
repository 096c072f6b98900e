// SPDX-License-Identifier: Apache-2.0
// Ranges of all edges chosen together, by what the errors of each do to each image's outputs, to first order. A method
// that sees the values of one edge alone lets a far image decide by its values, and every edge gives up other images.
// Here an image counts once, however far it is off, and one that is given up costs no other edge anything.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "src/quant/functions.h"
#include "src/train/qat/quantized_model.h"

namespace octet {

// What the errors of each edge, rounded and cut off by each of several ranges, do to each image's outputs, to first
// order (edge_noise.cpp).

/// How many ranges are tried for each edge.
inline constexpr int kReaches = 31;

/// Returns how far the k-th range that is tried for an edge reaches, of the largest magnitude: 2^(-k / 3), to 1/1024.
double reach(int k);

/// An edge, and what its ranges do.
struct EdgeNoise {
  int node = 0;
  std::vector<QParams> ranges;            ///< [kReaches]
  std::vector<std::vector<float>> noise;  ///< [kReaches][images]: squares of the outputs' errors over their signal
                                          ///< (OutputError), summed over the outputs
};

/// Images of joint ranges.
struct SeenImages {
  std::vector<at::Tensor> x;     ///< batches of normalized float [N, C, H, W] where the weights are
  std::vector<Interval> values;  ///< by node, what see() saw of all of x; empty: found by passes of their own

  /// Widens `values` to those of a node's output.
  void see(const Prepared& prepared, int node, const at::Tensor& y);
};

/// Returns the noise of all edges of a model over the images. median: FloatOutputs::median, around which an output's
/// signal is counted. What an edge's error, its values less those of their codes, does at the outputs is measured by
/// the float network's gradients of random sums of the outputs: the squares of such sums have the sum of the outputs'
/// squares for their mean (Hutchinson, "A stochastic estimator of the trace of the influence matrix", 1990). Errors of
/// rounding are taken for independent; those of values that a range cuts off add up. Of large edges some values are
/// taken, and the cut ones add up as much as in the mean over the images. An image's sums do not depend on its batch:
/// where the backward passes of a batch do not fit into the GPU's memory, they are made of half as many images at a
/// time. `each` is called before each pass. Throws c10::OutOfMemoryError where one image does not fit.
std::vector<EdgeNoise> edge_noises(QuantizedModel& model, const SeenImages& images,
                                   const std::vector<at::Tensor>& median, const std::function<void()>& each);

// The choice (joint_ranges.cpp).

/// Returns for each edge the k with which, together, least is lost: the mean over images of noise / (noise + outputs),
/// where noise is the sum over edges. Finds it by coordinate descent from each edge's own best and from common reaches;
/// `each` is called before each descent.
std::vector<int> choose_together(const std::vector<EdgeNoise>& edges, int outputs, const std::function<void()>& each);

/// Returns the ranges of edges, by node, that edge_noises() and choose_together() give over the images.
std::vector<QParams> joint_ranges(QuantizedModel& model, const SeenImages& images,
                                  const std::vector<at::Tensor>& median, const std::function<void()>& each);

/// Sets joint_ranges(). Returns false, and changes nothing, where the GPU's memory is not enough for one image.
bool set_joint_ranges(QuantizedModel& model, const SeenImages& images, const std::vector<at::Tensor>& median,
                      const std::function<void()>& each);
}  // namespace octet
