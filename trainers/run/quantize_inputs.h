// SPDX-License-Identifier: Apache-2.0
// The images or ready inputs that `octet quantize` calibrates on, chooses by and measures with.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "trainers/loop/input_tensors.h"
#include "trainers/run/quantize.h"
#include "trainers/run/run.h"

namespace octet {

inline constexpr size_t kHeldBack = 32;  ///< images of each of the two parts that are not calibrated on, at most

/// Opens the images or ready inputs of the request and deals them out at random: run.data.calibration; validation,
/// which choices are made by; and test. Images that cannot be read are told. Returns null for images. Throws
/// Error(usage) and Error(data) for what cannot be used, naming file and cure.
std::shared_ptr<InputTensors> open_inputs(const QuantizeRequest& request, Run& run);

/// Calls take(x) with the network's inputs of those images, batch by batch, as input_batches() returns them.
void for_input_batches(const Run& run, const std::vector<size_t>& indices,
                       const std::function<void(const at::Tensor& x)>& take);

/// Returns the network's inputs of those images, normalized float [N, C, H, W] on the run's device, in batches.
std::vector<at::Tensor> input_batches(const Run& run, const std::vector<size_t>& indices);

/// Throws Error(data) for a set of black or equal inputs, whose ranges would be those of nothing.
void require_differences(const std::vector<at::Tensor>& batches, bool are_images);

/// Returns how many images calibration takes at once: on a GPU 64; on the host at most 8, and fewer of a network whose
/// layers' outputs would exceed 384 MiB. Few images' values stay in caches, and their memory is used again instead of
/// mapped anew.
int calibration_batch(const Run& run);

}  // namespace octet
