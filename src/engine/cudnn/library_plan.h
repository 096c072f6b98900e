// Plans of NVIDIA's libraries fail in more ways than octet's kernels: by a status, by an exception of their own, for
// want of memory. No CUDA types here.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "kernels/launch_refused.h"
#include "src/cuda/memory.h"
#include "src/cuda/stream.h"

namespace octet {

/// Calls `work`. What it throws that is no Error (std::runtime_error of cudnn_frontend, std::bad_alloc) becomes an
/// Error(promise) that begins with `what`.
template <typename Work>
auto with_errors(const std::string& what, const Work& work) {
  try {
    return work();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw promise_error(what + ": " + error.what());
  }
}

/// time() of one plan, for fastest_candidate(). A plan that fails becomes LaunchRefused, unless `check_gpu` throws: it
/// is told the failure and finds out whether the GPU still works. OutOfGpuMemory stays what it is: nothing was
/// launched.
inline double time_plan(const std::function<double()>& time,
                        const std::function<void(const std::string& failure)>& check_gpu) {
  try {
    return time();
  } catch (const OutOfGpuMemory&) {
    throw;
  } catch (const std::exception& error) {
    check_gpu(error.what());
    throw kernels::LaunchRefused(error.what());
  }
}

/// The same, asking the GPU through `stream`: a plan that does not run here, or not in a CUDA graph, leaves the GPU as
/// it was; a failure of the GPU itself comes back from everything that follows. `plan` names it in that Error(promise).
double time_plan(const Stream& stream, const std::string& plan, const std::function<double()>& time);

}  // namespace octet
