// SPDX-License-Identifier: Apache-2.0
// One node, or a group of nodes, of a network compiled for the GPU: a launch on a stream, with constants that the step
// owns on the device. Which kernel runs a convolution or linear is measured once for each kind of convolution, number
// of images and GPU, and kept in a file (kernel_cache.h) for later processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "kernels/core/cuda.h"
#include "kernels/operators/lookup.h"
#include "src/cuda/memory.h"
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
  /// The output of a group's first node, for a step that computes a group. Only an expand_reduce writes it.
  void* first_output = nullptr;
  void* scratch = nullptr;  ///< scratch_bytes(images) that hold anything, shared by all steps and numbers of images
  /// zeroed_bytes(images), shared by the steps that ask for some. They are zeros when allocated; how much of them a
  /// launch leaves as zeros is agreed on by those steps (kCudaWorkspaceZeros).
  void* zeroed = nullptr;
  bool beside = false;                     ///< launch() concurrently with the step before, if can_run_beside()
  std::function<void()> before = nullptr;  ///< for prepare(): launches the step that runs before this one, if any
};

/// For every number of images the program calls prepare(), then scratch_bytes() and zeroed_bytes(), then launch() any
/// number of times, also while a CUDA graph is captured.
class CudaStep {
 public:
  virtual ~CudaStep() = default;

  virtual std::string engine() const { return "cuda"; }  ///< the engine's name for LayerInfo
  virtual std::string kernel(int images) const = 0;      ///< the kernel's name for LayerInfo, after prepare(images)

  /// Makes launches of data.images images possible: chooses a kernel (perhaps by timing launches on `data`, whose
  /// inputs hold what a run on random images leaves there), uploads constants, allocates. data.scratch and data.zeroed
  /// have no size yet: a step that measures allocates its own. Constants for other numbers of images stay valid.
  virtual void prepare(const CudaStepData& data, const Stream& stream) {}
  virtual size_t scratch_bytes(int images) const { return 0; }
  virtual size_t zeroed_bytes(int images) const { return 0; }

  virtual size_t constant_bytes() const { return 0; }        ///< bytes of weights and tables on the device
  virtual const void* constants() const { return nullptr; }  ///< where they are, for steps that share them

  /// Launches the kernel; allocates nothing and never synchronizes. Throws Error(promise) when the launch fails.
  virtual void launch(const CudaStepData& data, CudaStream stream) const = 0;

  /// Whether launch() of so many images obeys CudaStepData::beside. Such a step uses no work space.
  virtual bool can_run_beside(int images) const { return false; }

  /// Returns a step with the same constants that also looks up every code it writes, or null if there is none. It uses
  /// the kernel that this step chooses in prepare().
  virtual std::unique_ptr<CudaStep> with_lookup(const kernels::LookupTable&) const { return nullptr; }
};

/// Makes the step of a node, or null if its output shares its input's memory (Lowering::flatten_is_alias).
/// `lowering` and its graph outlive the step.
using CudaStepFactory = std::function<std::unique_ptr<CudaStep>(const Lowering& lowering, int node)>;

/// Makes a step with octet's own kernels; `kernels` is CompileOptions::kernels, for convolutions. Throws Error(promise)
/// for an unknown operator.
std::unique_ptr<CudaStep> make_cuda_step(const Lowering& lowering, int node, const std::string& kernels);

/// Returns the bytes of the steps' constants, counting those that several steps share once. A null step has none.
size_t distinct_constant_bytes(const std::vector<const CudaStep*>& steps);

/// Constants on the device that are packed and uploaded once for all steps that hold them at the same time, and freed
/// with the last of those steps.
class SharedConstants {
 public:
  /// `what` names the constants in errors.
  SharedConstants(const char* what, std::function<std::vector<uint8_t>()> pack) : what_(what), pack_(std::move(pack)) {}
  std::shared_ptr<const DeviceBuffer> upload(const Stream& stream);

 private:
  const char* what_;
  std::function<std::vector<uint8_t>()> pack_;
  std::weak_ptr<const DeviceBuffer> uploaded_;
};

/// A kernel without variants: what a KernelStep launches.
struct CudaKernel {
  std::string name;  ///< for LayerInfo
  /// `constants` is the device memory of the constants below.
  std::function<void(const CudaStepData& data, const uint8_t* constants, CudaStream stream)> launch;
  std::shared_ptr<SharedConstants> constants = nullptr;      ///< null: the kernel needs none
  std::function<size_t(int images)> zeroed_bytes = nullptr;  ///< null: CudaStepData::zeroed is not used
};

/// The step of one kernel.
class KernelStep final : public CudaStep {
 public:
  explicit KernelStep(CudaKernel kernel) : kernel_(std::move(kernel)) {}
  std::string kernel(int) const override { return kernel_.name; }
  void prepare(const CudaStepData&, const Stream& stream) override {
    if (kernel_.constants) constants_ = kernel_.constants->upload(stream);
  }
  size_t zeroed_bytes(int images) const override { return kernel_.zeroed_bytes ? kernel_.zeroed_bytes(images) : 0; }
  size_t constant_bytes() const override { return constants_ ? constants_->bytes() : 0; }
  const void* constants() const override { return constants_.get(); }
  void launch(const CudaStepData& data, CudaStream stream) const override {
    kernel_.launch(data, constants_ ? constants_->data() : nullptr, stream);
  }

 private:
  CudaKernel kernel_;
  std::shared_ptr<const DeviceBuffer> constants_;
};

/// Scratch of a compiled network on the GPU. All batch sizes share it: their runs follow one another on one stream.
class WorkSpace {
 public:
  /// Grows to what `step`, prepared for `images`, asks for. Throws OutOfGpuMemory and is then unchanged.
  void make_room(const CudaStep& step, int images, const Stream& stream);

  void* scratch() const { return scratch_.data(); }
  void* zeroed() const { return zeroed_.data(); }
  size_t bytes() const { return scratch_.bytes() + zeroed_.bytes(); }
  /// How often memory has moved: a CUDA graph that was captured before the last move must not run any more.
  int moves() const { return moves_; }

 private:
  DeviceBuffer scratch_, zeroed_;  ///< see CudaStepData
  int moves_ = 0;
};

/// One convolution with its tensors on the device; `tensors` has neither packed constants nor workspace yet.
struct ConvProblem {
  const kernels::Conv2dShape& shape;
  const kernels::Conv2dParams& params;
  const kernels::Conv2dWeights& weights;
  kernels::CudaConv2dData tensors;
  /// Launches the kernel that runs before this one in the network, or is empty. Candidates are timed after it, because
  /// their start overlaps its end, and it leaves the input, but not the weights, in the caches.
  const std::function<void()>& before;
};

/// Returns the line that remembered_choice() identifies the problem by.
std::string conv_work(const ConvProblem& problem);

/// Returns the fastest of the kernels whose names contain `allowed` ("auto": all) and that this GPU launches. May write
/// the output. Throws Error(promise) that lists the names if none contains `allowed`, or the refusals if the GPU
/// launches none of them.
kernels::CudaConv2d choose_conv2d(const ConvProblem& problem, const std::string& allowed, const Stream& stream);

/// Makes the step of a conv2d or linear, which chooses among the kernels that `kernels`, CompileOptions::kernels,
/// allows.
std::unique_ptr<CudaStep> make_cuda_conv_step(const Lowering& lowering, int node, const std::string& kernels);

}  // namespace octet
