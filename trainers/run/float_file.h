// SPDX-License-Identifier: Apache-2.0
// The float network of a file as it is measured beside int8. Here, apart from what opens it (quantize_files.h), it is
// without LibTorch's headers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/engine/engine.h"
#include "src/net/int8_graph.h"

namespace octet {

struct FloatFile {
  /// Its input and its outputs, all float32 and with the file's names: what commands that measure a checkpoint need to
  /// know of it. No engine runs it.
  Int8Graph ends;
  std::vector<std::string> outputs;  ///< values of the file that the network ends at; empty: the file's own outputs
  std::string unlike;                ///< how its input or an output differs from the file's; "": in nothing
  long multiply_adds = 0;            ///< of one image
  std::unique_ptr<Program> program;
};

}  // namespace octet
