// SPDX-License-Identifier: Apache-2.0
// Counts which operators random networks contained, so that equal bytes say what they are equal for.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "src/net/int8_graph.h"

namespace octet::test {

class NetworkCoverage {
 public:
  NetworkCoverage();
  void add(const Int8Graph& graph, int images);
  /// Returns "600 networks, 1234 bytes of nodes; networks with add: 210, ...".
  std::string text() const;
  /// Returns what fewer than one network in fifty had, or "". Fewer than 100 networks need not contain everything.
  std::string rare() const;

 private:
  int networks_ = 0;
  size_t bytes_ = 0;                          ///< that the nodes' outputs are, for all images
  std::map<std::string, int> networks_with_;  ///< an operator, a form of one, or a number of outputs
};

}  // namespace octet::test
