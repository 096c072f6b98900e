// A report with everything in it.
#pragma once

#include <string>

#include "src/report/report.h"

namespace octet::testing {

/// Names hold characters that HTML and JSON must escape.
Report full_report(int classes);

/// Of a network of segmentation, as small as it can be: two pictures, of which float has a pixel more right than int8.
Report pixels_report();

/// A network that has the pictures from `first` to `last` of 10,000 right.
Evaluation right_from(const std::string& name, long first, long last);

}  // namespace octet::testing
