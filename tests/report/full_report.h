// SPDX-License-Identifier: Apache-2.0
// A report with everything in it.
#pragma once

#include <string>

#include "src/report/report.h"

namespace octet::testing {

/// Names hold characters that HTML and JSON must escape.
Report full_report(int classes);

/// Returns the smallest report of a segmentation: two images, with one pixel that float has right and int8 has not.
Report pixels_report();

/// Returns the smallest report of a detector: three images, of which float finds the box in all, int8 in two.
Report boxes_report();

/// A network that has the images from `first` to `last` of 10,000 right.
Evaluation right_from(const std::string& name, long first, long last);

}  // namespace octet::testing
