// SPDX-License-Identifier: Apache-2.0
// The base of engines that run another library's convolutions, to compare octet's with: one engine class, one step and
// one set of constants on the device, how plans of other libraries are timed, and how these libraries are loaded. No
// types of CUDA here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "kernels/core/cuda.h"
#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "src/engine/cuda/step.h"
#include "src/engine/engine.h"
#include "src/engine/lowering.h"
#include "src/engine/peers/operations.h"

namespace octet {

/// An engine that runs conv2d and linear nodes of int8 codes by another library, and other nodes on engine cuda if
/// CompileOptions::fallback says so. Codes may differ from the reference, as the library's arithmetic is its own.
class PeerEngine : public Engine {
 public:
  Support available() const override { return available_on(kCurrentGpu); }
  bool on_gpu() const override { return true; }
  bool exact() const override { return false; }
  Support supports(const Int8Graph& graph, int node) const override;
  /// Also throws Error(promise) if the fallback would run all nodes, Error(usage) for an unknown options.fallback or
  /// options.kernels.
  void check(const Int8Graph& graph, const CompileOptions& options) const override;
  std::unique_ptr<Program> compile(const Int8Graph& graph, const CompileOptions& options) const override;

 protected:
  virtual std::string library() const = 0;                      ///< its name in messages: "cuDNN"
  virtual std::vector<std::string> kernel_choices() const = 0;  ///< the values of CompileOptions::kernels
  /// Returns why the library does not run a conv2d or linear of int8 codes with zero point 0, or "".
  virtual std::string fault(const Int8Graph& graph, int node) const = 0;
  /// Makes the step of a node that the engine supports.
  virtual std::unique_ptr<CudaStep> make_step(const Lowering& lowering, int node,
                                              const CompileOptions& options) const = 0;
  /// Called before the first make_step() of a program.
  virtual void prepare(const Int8Graph& graph, const CompileOptions& options) const {}
};

/// The bytes that these libraries' kernels load at a time: their channels are multiples of it.
inline constexpr int kPeerLanes = 16;

/// Returns the channels, rounded up to a multiple of kPeerLanes.
constexpr int peer_lanes(int channels) { return (channels + kPeerLanes - 1) / kPeerLanes * kPeerLanes; }

/// Returns whether pixels of so many channels are multiples of kPeerLanes bytes in the engine's tensors.
bool fills_lanes(int channels);

/// Returns why the window's padding cannot be described to the libraries, or "".
std::string padding_fault(const Window& window);

/// Weights, multipliers and biases of a conv2d or linear on the device, padded with zeros to a multiple of kPeerLanes
/// channels.
class PeerConstants {
 public:
  /// Uploads codes [lanes_out, R, S, lanes_in], multiplier and bias [lanes_out], and the residual's multiplier [1], and
  /// waits for it.
  PeerConstants(const kernels::Conv2dShape& shape, const kernels::Conv2dWeights& weights, float residual_multiplier,
                int lanes_in, int lanes_out, const Stream& stream);
  const int8_t* weight() const { return reinterpret_cast<const int8_t*>(memory_.data()); }
  const float* multiplier() const { return floats(); }
  const float* bias() const { return floats() + lanes_out_; }
  const float* residual_multiplier() const { return floats() + 2 * lanes_out_; }
  size_t bytes() const { return memory_.bytes(); }

 private:
  const float* floats() const { return reinterpret_cast<const float*>(memory_.data() + weight_bytes_); }

  size_t lanes_out_, weight_bytes_;  ///< weight_bytes_ is rounded up, so that the floats after it are aligned
  DeviceBuffer memory_;
};

/// Returns a node's convolution with the pixel strides as channels, so that numbers of channels that are no multiple of
/// 16 run too: the weights of lanes behind the last channel are 0.
FusedConvSpec fused_conv_spec(const Lowering& lowering, int node, int images);

// The steps of the engines cudnn and cutlass, for nodes that they support.
std::unique_ptr<CudaStep> make_cudnn_conv_step(const Lowering& lowering, int node, bool every_plan);
std::unique_ptr<CudaStep> make_cudnn_linear_step(const Lowering& lowering, int node);
std::unique_ptr<CudaStep> make_cutlass_step(const Lowering& lowering, int node);

/// Plans of other libraries are timed so often, and only once if they are so much slower than the fastest so far.
inline constexpr int kPlanRuns = 5;
inline constexpr double kPlanSlowRatio = 3;

/// Calls `work`. An exception that is no Error (std::runtime_error of cudnn_frontend, std::bad_alloc) becomes an
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

/// Returns time() of one plan, for fastest_candidate(). If the plan fails, in whatever way, `check_gpu` is told the
/// failure and throws if the GPU no longer works; then the failure becomes LaunchRefused. OutOfGpuMemory stays what it
/// is, as nothing was launched.
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

/// Returns time_plan() with a check of the GPU by `stream`: a plan that does not run here, or not in a CUDA graph,
/// leaves the GPU usable, but a failure of the GPU itself makes everything that follows fail. `plan` names it in that
/// Error(promise).
double time_plan(const Stream& stream, const std::string& plan, const std::function<double()>& time);

/// Returns the milliseconds of a plan that needs `workspace_bytes` of scratch: `launch(workspace)` puts it on `stream`.
/// `library` names its owner in errors. Throws as time_plan() does.
double time_library_plan(const Stream& stream, const std::string& library, const std::string& plan,
                         size_t workspace_bytes, double slow_ms, const std::function<void(void* workspace)>& launch);

// cuDNN and cuBLASLt are loaded at their first use, so that octet also starts where they are missing.

/// Loads the libraries once and returns whether they can be used, or the fault and its cure. Never throws.
const Support& cudnn_libraries();

/// Returns for example "cuDNN 9.19.0", after cudnn_libraries() was ok.
const std::string& cudnn_version();

/// Returns the address of a function of libcublasLt, after cudnn_libraries() was ok. Throws Error(promise) if the
/// library lacks it.
void* cublaslt_function(const char* name);

struct LibraryVersion {
  int major = 0, minor = 0, patch = 0;

  /// Splits NVIDIA's single number: 91900 is 9.19.0.
  static LibraryVersion from_number(size_t number);
  std::string text() const;  ///< "9.19.0"
};

struct LoadedLibrary {
  std::string name;   ///< for example "cuDNN"
  std::string wheel;  ///< the package that pip installs it from
  LibraryVersion loaded, compiled_for;
};

/// Returns "" if octet can use the loaded library, else both versions and the cure. Within a major version NVIDIA keeps
/// what older headers declare, so a newer library is fine; an older minor version may lack functions and kernels.
std::string version_fault(const LoadedLibrary& library);

}  // namespace octet
