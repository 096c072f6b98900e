// One node of a network compiled for the GPU: a launch on a stream, with constants that the step owns on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/cuda_stream.h"
#include "kernels/elementwise_int8/lookup_int8.h"
#include "src/cuda/stream.h"
#include "src/engine/lowering.h"

namespace octet {

/// The tensors of one launch, all on the device: [images, H, W, cuda_channel_stride(C)] bytes, one pointer an input of
/// the node; for the input node the pixels [images, H, W, C]. A node with float_output writes float32 [images, H, W,
/// C]. Tensors start at multiples of kDeviceAlignment and may be read kCudaReadSlack bytes past their end.
struct CudaStepData {
  int images = 0;
  const uint8_t* const* inputs = nullptr;
  void* output = nullptr;
  /// Of a group of nodes that one step computes: the first one's. Only an expand_reduce writes it.
  void* first_output = nullptr;
  void* scratch = nullptr;  ///< scratch_bytes(images) that hold anything, shared by all steps and numbers of images
  /// zeroed_bytes(images), shared by the steps that ask for some: zeros when it is allocated; how much of it they leave
  /// as zeros is their agreement (kCudaWorkspaceZeros).
  void* zeroed = nullptr;
  bool beside = false;                     ///< for launch(): while the step before this one runs, if can_run_beside()
  std::function<void()> before = nullptr;  ///< for prepare(): launches the step that runs before this one, if any
};

/// For every number of images the program calls prepare(), then scratch_bytes() and zeroed_bytes(), then launch() any
/// number of times, also while a CUDA graph is captured.
class CudaStep {
 public:
  virtual ~CudaStep() = default;

  /// For LayerInfo; the kernel after prepare(images).
  virtual std::string engine() const { return "cuda"; }
  virtual std::string kernel(int images) const = 0;

  /// Makes launches of data.images images possible: the step chooses a kernel (perhaps by timing launches on `data`,
  /// whose inputs hold what a run on random images leaves there), uploads constants, allocates. data.scratch and
  /// data.zeroed have no size yet: a step that measures brings its own. Constants for other numbers of images stay
  /// valid.
  virtual void prepare(const CudaStepData& data, const Stream& stream) {}
  virtual size_t scratch_bytes(int images) const { return 0; }
  virtual size_t zeroed_bytes(int images) const { return 0; }

  /// Bytes of constants on the device: weights, tables.
  virtual size_t constant_bytes() const { return 0; }

  /// Allocates nothing and never synchronizes. Throws Error(promise) when the launch fails.
  virtual void launch(const CudaStepData& data, CudaStream stream) const = 0;

  /// Whether launch() of so many images heeds CudaStepData::beside. A step that does uses no work space.
  virtual bool can_run_beside(int images) const { return false; }

  /// The same on the same constants, with a look-up of every code that it writes; null if it cannot. What it chooses in
  /// prepare() is this step's choice too.
  virtual std::unique_ptr<CudaStep> with_lookup(const kernels::LookupTable&) const { return nullptr; }
};

/// Makes the step of a node, or null when its output shares its input's memory (Lowering::flatten_is_alias).
/// `lowering` and its graph stay as long as the step.
using CudaStepFactory = std::function<std::unique_ptr<CudaStep>(const Lowering& lowering, int node)>;

/// A step with octet's own kernels. `kernels`: CompileOptions::kernels, for convolutions. Throws Error(promise) for an
/// operator it does not know.
std::unique_ptr<CudaStep> make_cuda_step(const Lowering& lowering, int node, const std::string& kernels);

}  // namespace octet
