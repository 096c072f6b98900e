// SPDX-License-Identifier: Apache-2.0
// Ranges of all edges chosen together, by what the errors of each do to each image's outputs, to first order. A method
// that sees the values of one edge alone lets a far image decide by its values, and every edge gives up other images.
// Here an image counts once, however far it is off, and one that is given up costs no other edge anything.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "src/train/qat/quantized_model.h"
#include "src/train/repair/edge_noise.h"

namespace octet {

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

/// Sets the ranges of all edges of a calibrated model; `ranges` is by node.
void set_edges(QuantizedModel& model, const std::vector<QParams>& ranges);

}  // namespace octet
