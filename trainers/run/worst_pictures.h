// SPDX-License-Identifier: Apache-2.0
// The test images that a report shows of a network of detection or segmentation: those on which int8 loses most of what
// the float network has right. They are found in the evaluations; no network runs again.
#pragma once

#include <cstddef>
#include <vector>

#include "src/eval/evaluate.h"
#include "src/recipe/run.h"
#include "src/report/report.h"

namespace octet {

inline constexpr size_t kShownPictures = 6;

/// Returns the test images with labels on which an int8 network is furthest below the float network by AP, then those
/// on which it finds least.
std::vector<ReportBoxes> worst_boxes(const RunData& data, const Evaluation& before, const Evaluation& int8);

/// Returns the test images on which an int8 network of segmentation is furthest below the float network by mean
/// intersection over union, and of equally far ones those on which more of their pixels differ.
std::vector<ReportPicture> worst_masks(const RunData& data, const Evaluation& before, const Evaluation& int8);

}  // namespace octet
