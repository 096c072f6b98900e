// SPDX-License-Identifier: Apache-2.0
// Small graphs with every op, for the tests of this folder.
#pragma once

#include <string>

#include "src/base/safetensors.h"
#include "src/net/int8_graph.h"
#include "tests/error_of.h"
#include "tests/source_dir.h"

namespace octet {

/// A valid Int8Graph in which every Int8Op occurs, with a residual, groups, and logits of 3 classes.
Int8Graph every_op_graph();

/// Returns graph_of_operators() without the operators that format versions after this one brought.
Int8Graph graph_of_operators_until(int version);

/// Parses a checkpoint, named test.safetensors in errors.
Int8Graph parse(const std::string& bytes);

/// Replaces a part of the document of a checkpoint, which must be there.
void replace(TensorFile& file, const std::string& from, const std::string& to);

Int8Node& node_named(Int8Graph& graph, const std::string& name);

}  // namespace octet
