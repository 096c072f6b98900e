// Where a network that is not imported whole could end: what puts boxes together, suppresses them or picks a class
// stands behind the last layers in many files, and octet has none of it.
#pragma once

#include <string>
#include <vector>

#include "src/onnx/network.h"

namespace octet {

/// Why a value cannot be an output; "": it can.
std::string output_fault(const OnnxValue& value);

/// Where the network could end, and what would then stand outside.
struct NearestValues {
  std::vector<std::string> names;     ///< of the values, in the file's order
  std::vector<std::string> left_out;  ///< operators behind them, each once
};

/// The values nearest to `outputs` that octet has, after every node was tried. Empty where something of the trained
/// network would be lost: behind them stand layers with more than a hundredth of the weights, or numbers for each of
/// their channels (a bias).
NearestValues nearest_values(Network& network, const std::vector<std::string>& outputs);

}  // namespace octet
