#include "src/engine/cudnn/library_plan.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

namespace octet {

double time_plan(const Stream& stream, const std::string& plan, const std::function<double()>& time) {
  return time_plan(time, [&](const std::string& failure) {
    cudaGetLastError();  // the plan's: the next launch must not be blamed for it
    stream.wait(fmt::format("the GPU has failed after {}: {}", plan, failure).c_str());
  });
}

}  // namespace octet
