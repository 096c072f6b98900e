// What a network gives, as messages say it.
#pragma once

#include <string>
#include <type_traits>

#include "src/graph/int8_graph.h"
#include "src/graph/window.h"

namespace octet {

/// "'fc' [10, 1, 1], 'mask' [2, 64, 64]"; of an Int8Graph also whether these are float32 or codes.
template <typename Network>
std::string outputs_text(const Network& network) {
  std::string text;
  for (const int output : network.outputs) {
    const auto& node = network.nodes[static_cast<size_t>(output)];
    text += (text.empty() ? "'" : ", '") + node.name + "' ";
    if constexpr (std::is_same_v<Network, Int8Graph>) text += node.float_output ? "float32 " : "codes ";
    text += to_string(node.shape);
  }
  return text;
}

}  // namespace octet
