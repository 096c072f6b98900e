// The JSON document of a checkpoint: all of an Int8Graph except its tensors.
#pragma once

#include <string>
#include <string_view>

#include "src/graph/int8_graph.h"

namespace octet {

std::string write_checkpoint_json(const Int8Graph& graph);

/// Nodes come back with empty tensors. Throws Error(data), also for a format version that is unknown or
/// older than one of its operators.
Int8Graph read_checkpoint_json(std::string_view text, const std::string& where);

}  // namespace octet
