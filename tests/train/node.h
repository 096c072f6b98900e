// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/net/zoo.h"

namespace octet::test {

/// Returns a node as a recipe writes it.
inline NodeSpec node(const std::string& name, const std::string& op, std::map<std::string, double> attributes = {},
                     std::vector<std::string> inputs = {}) {
  return {name, op, std::move(inputs), std::move(attributes)};
}

}  // namespace octet::test
