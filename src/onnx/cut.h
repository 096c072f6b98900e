// Where a network that is not imported whole could end: what puts boxes together, suppresses them or picks a class
// stands behind the last layers in many files, and octet has none of it.
#pragma once

#include <string>
#include <vector>

#include "src/onnx/network.h"

namespace octet {

/// Why a value cannot be an output; "": it can.
std::string output_fault(const OnnxValue& value);

/// The values nearest to `outputs` that octet has, after every node was tried: in the file's order, none when layers
/// with more than a hundredth of the weights stand behind them.
std::vector<std::string> nearest_values(Network& network, const std::vector<std::string>& outputs);

}  // namespace octet
