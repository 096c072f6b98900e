// SPDX-License-Identifier: Apache-2.0
// A detector small enough to be trained in a test, images drawn for it, and what is asked of its run.
#pragma once

#include <cstdint>
#include <string>

#include "src/report/report.h"

namespace octet::testing_trainers {

/// Writes FOLDER/SPLIT.json and FOLDER/images/SPLIT: discs and squares of one or two in an image, on noise.
void draw_shapes(const std::string& folder, const std::string& split, int images, uint64_t seed);

/// Five convolutions and a head of YOLOX at strides 8 and 16, for that many classes. fixed: it takes no other input
/// than 64 pixels high and wide.
std::string detector_network(int classes, bool fixed = false);

/// Returns a recipe for these images; `model` and `more` are keys of it.
std::string detector_recipe(const std::string& folder, const std::string& model, const std::string& more);

/// Returns the score of a row, which must be there.
double score_of(const Report& report, const std::string& name);

/// Returns the AP of a checkpoint, which must say all that a program needs, on the test images.
double ap_of(const std::string& checkpoint, const std::string& folder);

}  // namespace octet::testing_trainers
