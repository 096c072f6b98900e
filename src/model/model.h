// A Graph with weights, walked with LibTorch operators. One interpreter for every network, before and after fuse.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/graph/graph.h"
#include "src/model/images.h"
#include "src/model/shared_batch_norm.h"

namespace octet {

/// Parameters and buffers by PyTorch name, float32. Trainable ones require grad.
using Weights = std::map<std::string, at::Tensor>;

/// On the CPU, so that a seed means the same everywhere; to_device (src/model/device.h) moves them. Kaiming-normal (fan
/// out, ReLU; He et al. 2015) convolutions, PyTorch's default linears, BatchNorm 1/0/0/1; deterministic by seed.
Weights initial_weights(const Graph& graph, uint64_t seed);

struct LoadReport {
  std::vector<std::string> missing, unexpected, misshaped;  ///< names; misshaped with both shapes
};

/// Reads .safetensors or PyTorch's .pth/.th (see src/import/pytorch_file.h) into `weights`. Where a name is not one of
/// the network's, "module.", "_orig_mod." and "model." are taken off its front; num_batches_tracked and n_averaged are
/// ignored. Throws Error(data) if a tensor is missing or misshaped, after listing all of them; unexpected ones are
/// reported only. `weights` stay on their device.
LoadReport load_weights(Weights& weights, const Graph& graph, const std::string& path);

void save_weights(const Weights& weights, const std::string& path);  ///< .safetensors, atomically

/// last[n]: the last node that reads node n's output (-1: none), after which a walk gives its memory back; of the
/// graph's outputs none does, and the number of nodes stands there.
std::vector<int> last_readers(const Graph& graph);

/// What a conv2d or linear computes with: product(x, weight) + bias, then BatchNorm unless both hold it already.
struct LayerParameters {
  at::Tensor weight;
  at::Tensor bias;  ///< float32 [K]; undefined: none
  bool batch_norm_folded = false;
};

/// A node's value on its way: value + bias + residual, then node.activation, is its output.
struct Unfinished {
  at::Tensor value;           ///< what its operator, and BatchNorm unless folded, gave
  at::Tensor bias, residual;  ///< undefined: none, or in `value` already
  bool owned = false;         ///< value is a temporary that no other node and no backward needs, to be overwritten
};

/// value + bias + residual in value's type, in place where owned.
at::Tensor add_up(const Unfinished& node);

struct WalkHooks {
  /// Replaces the parameters of a conv2d or linear.
  std::function<LayerParameters(int node, const LayerParameters& own)> parameters;
  /// Takes the place of add_up and activate, and may do more in the same pass. Not called for the input.
  std::function<at::Tensor(int node, const Unfinished& y)> finish;
  std::function<at::Tensor(int node, at::Tensor output)> output;  ///< replaces (or looks at) a node's output
};

/// Share of a batch's statistics in the running ones.
inline constexpr double kBatchNormMomentum = 0.1;

struct WalkMode {
  bool training = false;             ///< dropout on
  bool batch_norm_training = false;  ///< batch statistics; running statistics follow with kBatchNormMomentum
  /// Those are of all shares of the batch, of which x is one; null: x is the batch. Must outlive the backward pass.
  const GatherShares* shares = nullptr;
};

/// In place where x is owned (see Unfinished).
at::Tensor activate(at::Tensor x, Activation activation, bool owned);

/// x: float [N, C, H, W] (channels-last welcome). Returns the first output as [N, elements]: a classifier's logits.
/// hooks.output sees every one. Every activation, also after flatten and
/// linear, is [N, C, H, W]. Runs where x and the weights are. Under autocast convolutions and linears run in its type
/// and batch_norm in its input's.
at::Tensor walk(const Graph& graph, const Weights& weights, const at::Tensor& x, const WalkMode& mode,
                const WalkHooks& hooks = {});

/// Where NaN or infinity begins on the way of x through the network: "node 'conv2'", or "node 'conv2', its weights";
/// "": all outputs are finite. Walks without gradients; with mode.batch_norm_training running statistics move.
std::string first_non_finite(const Graph& graph, const Weights& weights, const at::Tensor& x,
                             const WalkMode& mode = {});

/// images_to_tensor of src/model/images.h on the CPU: uint8 [batch, H, W, C] -> normalized float [N, C, H, W].
at::Tensor images_to_tensor(const uint8_t* images, int batch, const Shape& shape, const std::vector<float>& mean,
                            const std::vector<float>& std);

}  // namespace octet
