// A kernel that this GPU does not take, as opposed to a GPU that fails. No CUDA headers.
#pragma once

#include <string>

#include "src/common/error.h"

namespace octet::kernels {

/// A launch asks for more than this GPU has for a block: shared memory, registers, threads, a cluster of blocks.
/// Nothing ran and the GPU is as before: whoever has other kernels for the work may go on with them.
class LaunchRefused : public Error {
 public:
  explicit LaunchRefused(const std::string& message) : Error(ExitCode::promise, message) {}
};

}  // namespace octet::kernels
