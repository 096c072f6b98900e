// What octet analyze measured, as a table and as a page.
#pragma once

#include <cstddef>
#include <string>

#include "src/common/text_table.h"
#include "src/eval/task.h"
#include "src/qat/sensitivity.h"

namespace octet::cli {

inline constexpr const char* kSensitivityLegend =
    "dB: 10 log10(signal / error) of the logits with this layer alone quantized (the worst first), with all but this "
    "one, and of its own output and channels with all; weights, codes: bits";

struct MeasuredLayers {
  const Sensitivity& result;
  size_t images = 0;  ///< of the validation images
  Labels labels = Labels::image;

  /// What can have the float network's class: "256 validation images", "the pixels of 1 validation image".
  std::string answers() const;
};

/// The most expensive first: by what it costs alone.
TextTable sensitivity_table(const Sensitivity& result);

std::string analyze_page(const MeasuredLayers& measured, const std::string& title);

}  // namespace octet::cli
