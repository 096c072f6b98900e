// Small graphs with every op, for the tests of this folder.
#pragma once

#include <functional>
#include <string>

#include "src/graph/int8_graph.h"

namespace octet {

/// A valid Int8Graph in which every Int8Op occurs, with a residual, groups, and logits of 3 classes.
Int8Graph every_op_graph();

Int8Node& node_named(Int8Graph& graph, const std::string& name);

/// The message of the octet::Error that `body` throws; "" if it throws none.
std::string error_of(const std::function<void()>& body);

/// Folder of the shared data sets and weights, "" if this machine has none.
std::string shared_data();

}  // namespace octet
