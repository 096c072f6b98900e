// Pictures of the report: what the pixels of test images are, and what two networks take them for.
#pragma once

#include <vector>

#include "src/engine/engine.h"
#include "src/report/report.h"
#include "src/run/run_data.h"

namespace octet {

/// Of the first few test images, of Labels::pixels. before, int8: their programs.
std::vector<ReportPicture> shown_pictures(const RunData& data, Program& before, Program& int8);

}  // namespace octet
