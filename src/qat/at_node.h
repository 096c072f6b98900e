// Errors about a node name it.
#pragma once

#include "src/common/error.h"
#include "src/graph/graph.h"

namespace octet {

/// Runs f; an Error of it gets the node's name.
template <class F>
auto at_node(const Node& node, const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    throw Error(error.code(), "'" + node.name + "': " + error.what());
  }
}

}  // namespace octet
