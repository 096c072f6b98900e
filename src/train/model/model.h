// SPDX-License-Identifier: Apache-2.0
// A Graph with weights, as LibTorch runs it: images in, weights from files, and the walk of its nodes. One walk serves
// every network, before and after fuse.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/net/graph.h"

namespace octet {

// Images.

/// `count` images in the host's memory: uint8 [count, H, W, C] of this shape.
struct Images {
  const uint8_t* pixels = nullptr;
  int count = 0;
  Shape shape;
};

/// Returns float [N, C, H, W] on `device` in channels-last memory, where each value is tables[c * 256 + pixel]. For a
/// GPU the bytes are copied there and looked up there, on the current stream; the copy has ended on return, so that the
/// caller may overwrite the images.
at::Tensor look_up_pixels(const Images& images, const std::vector<float>& tables, at::Device device);

/// Returns the value of each pixel, normalize_pixel(pixel, mean[c], std[c]) at c * 256 + pixel.
std::vector<float> normalization_tables(int channels, const std::vector<float>& mean, const std::vector<float>& std);

/// Returns the images normalized: normalize_pixel(pixel, mean[c], std[c]), by the table that int8 inputs use too, so
/// that CPU and GPU give the same bits.
at::Tensor images_to_tensor(const Images& images, const std::vector<float>& mean, const std::vector<float>& std,
                            at::Device device = at::kCPU);

// Weights.

/// Parameters and buffers by PyTorch name, float32. Trainable ones require grad.
using Weights = std::map<std::string, at::Tensor>;

/// Returns new weights on the CPU, so that a seed means the same everywhere: convolutions Kaiming-normal (fan out,
/// ReLU; He et al. 2015), linears as PyTorch's default, BatchNorm with weight and variance 1, bias and mean 0.
Weights initial_weights(const Graph& graph, uint64_t seed);

/// Returns copies of the weights, without gradients, on `device`; empty: where the weights are.
Weights copies_of(const Weights& weights, std::optional<at::Device> device = std::nullopt);

struct LoadReport {
  std::vector<std::string> missing, unexpected, misshaped;  ///< names; misshaped ones with both shapes
};

/// Reads .safetensors or PyTorch's .pt, .pth or .th (src/net/import/pytorch_file.h) into `weights`, on their device. A
/// name that is not the network's is tried without the prefixes "module.", "_orig_mod." and "model.";
/// num_batches_tracked and n_averaged are ignored. Throws Error(data) listing every tensor that is missing or
/// misshaped; unexpected ones are only reported. Layers that `new_layers` names (with * and ?) stay as they are,
/// whatever the file has; Error(usage) for a name of none.
LoadReport load_weights(Weights& weights, const Graph& graph, const std::string& path,
                        const std::vector<std::string>& new_layers = {});

void save_weights(const Weights& weights, const std::string& path);  ///< writes .safetensors, atomically

// BatchNorm in training over a batch that several processes share.

/// Returns [shares, ...]: the tensors of all shares of a batch, in their order and with the same bits in each process.
/// All shares are equally large. On a GPU it is queued in the current stream and does not wait.
using GatherShares = std::function<at::Tensor(const at::Tensor& mine)>;

/// Float [C] each; the running statistics are updated in place.
struct BatchNormTensors {
  at::Tensor weight, bias, running_mean, running_var;
};

/// Returns those of a BatchNorm: of a node, or of what fuse merged into one.
BatchNormTensors batch_norm_tensors(const Weights& weights, const std::string& name);

/// Returns at::batch_norm in training of x [N, C, H, W], this process's share of the batch, with the statistics of the
/// whole batch. The gradient of x is that of the whole batch's loss; the gradients of weight and bias are this share's
/// part, to be summed over the shares.
at::Tensor shared_batch_norm(const at::Tensor& x, const BatchNormTensors& tensors, double momentum, double epsilon,
                             const GatherShares& gather);

/// Weight of a batch's statistics in the running ones.
inline constexpr double kBatchNormMomentum = 0.1;

// The walk.

/// What a conv2d or linear computes with: product(x, weight) + bias, then BatchNorm unless it is folded into both.
struct LayerParameters {
  at::Tensor weight;
  at::Tensor bias;  ///< float32 [K]; undefined: none
  bool batch_norm_folded = false;
  at::Tensor scale;  ///< float32 [K] of the codes that a quantized weight has; on a GPU always the same memory
};

/// The value of a node before its last operations: activation(value + bias + residual) is its output.
struct Unfinished {
  at::Tensor value;           ///< result of its operator, and of its BatchNorm unless folded
  at::Tensor bias, residual;  ///< undefined: none, or already in `value`
  bool owned = false;         ///< value may be overwritten: no other node and no backward pass needs it
};

/// Returns value + bias + residual in value's type, in place where owned.
at::Tensor add_up(const Unfinished& node);

/// Returns activation(value + bias + residual), a node's output, in place where owned.
at::Tensor finished(const Unfinished& node, Activation activation);

struct WalkHooks {
  /// Replaces the parameters of a conv2d or linear.
  std::function<LayerParameters(int node, const LayerParameters& own)> parameters;
  /// Replaces what a conv2d or linear multiplies, by a tensor of the same values.
  std::function<at::Tensor(int node, const at::Tensor& input)> input;
  /// Replaces finished(), and may do more in the same pass. Not called for the input.
  std::function<at::Tensor(int node, const Unfinished& y)> finish;
  /// Replaces BatchNorm in training over a whole batch, and finished() after it, of a conv2d or linear whose value y
  /// has not been normalized; an undefined result replaces neither.
  std::function<at::Tensor(int node, const Unfinished& y, const BatchNormTensors& batch_norm)> normalize;
  /// Replaces a node without weight, finished() after it included, given the outputs that it reads; an undefined result
  /// replaces nothing.
  std::function<at::Tensor(int node, const std::vector<at::Tensor>& inputs)> operate;
  /// Replaces, or only reads, the output of a node, the input included.
  std::function<at::Tensor(int node, at::Tensor output)> output;
};

struct WalkMode {
  bool training = false;             ///< dropout is on
  bool batch_norm_training = false;  ///< BatchNorm takes the batch's statistics and updates the running ones
  /// Gives BatchNorm the statistics of all shares of a batch, of which x is one; null: x is the whole batch. Must
  /// outlive the backward pass.
  const GatherShares* shares = nullptr;
};

/// Returns the outputs side by side as [N, elements], each in the order of [C, H, W] (of a classifier its logits), for
/// x float [N, C, H, W] (channels-last is faster). Runs where x and the weights are. Every activation is [N, C, H, W],
/// also after flatten and linear. Under autocast convolutions and linears run in its type and BatchNorm in its input's.
/// With `after`, one of cut_points(), x is that node's output and only the nodes behind it run.
at::Tensor walk(const Graph& graph, const Weights& weights, const at::Tensor& x, const WalkMode& mode,
                const WalkHooks& hooks = {}, int after = 0);

/// Returns the first node whose output is NaN or infinite: "node 'conv2'", or "node 'conv2', its weights" where those
/// are; "" if all outputs are finite. Walks without gradients; mode.batch_norm_training updates running statistics.
std::string first_non_finite(const Graph& graph, const Weights& weights, const at::Tensor& x,
                             const WalkMode& mode = {});

/// Returns the output of one node without weights. values: by node; those that it reads are there.
at::Tensor walk_node(const Graph& graph, const Weights& weights, int node, const std::vector<at::Tensor>& values,
                     const WalkHooks& hooks);

// BatchNorm with fixed statistics as part of the layer before it: gain * product(x, weight) + bias. QAT with frozen
// BatchNorm multiplies the fake-quantized weight by the gain: codes and scales remain those of the weight itself, and
// deployment folds the gain into the multiplier.

struct FixedBatchNorm {
  BatchNormTensors tensors;
  at::Tensor offset;  ///< float [C]: bias of the layer before; undefined: none
  double epsilon = kBatchNormEpsilon;
};

/// Returns the BatchNorm that is fused into a conv2d or linear whose bias is `offset`.
FixedBatchNorm fixed_batch_norm(const Weights& weights, const Node& node, const at::Tensor& offset);

struct GainAndBias {
  at::Tensor gain;  ///< weight / sqrt(variance + eps)
  at::Tensor bias;  ///< bias + (offset - mean) * gain
};

/// Computes them by plain operators, which defines them.
GainAndBias gain_and_bias(const FixedBatchNorm& batch_norm);

/// Computes those of a whole network, and their gradients, in a few launches on a GPU.
std::vector<GainAndBias> gains_and_biases(const std::vector<FixedBatchNorm>& batch_norms);

/// Returns the layer with its weight times the gain, and the bias.
LayerParameters fold_batch_norm(const LayerParameters& layer, const GainAndBias& folded);

/// A layer without its weight: its bias, or the BatchNorm to fold into weight and bias.
class FoldedLayer {
 public:
  /// Takes them from `weights` as these are now.
  FoldedLayer(const Node& node, const Weights& weights);
  LayerParameters with(const at::Tensor& weight) const;

 private:
  GainAndBias folded_;
};

// Parts of a network: what one of several processes runs when they divide its layers.

/// Nodes first + 1 to last; with first 0 also node 0, the input.
struct GraphPart {
  int first = 0, last = 0;
};

/// Walks a part and returns the output of node `last`. x is the output of node `first`, hooks applied; with first 0 it
/// is the image. Later nodes may read no other output of the part (see cut_points()).
at::Tensor walk_part(const Graph& graph, const Weights& weights, const GraphPart& part, const at::Tensor& x,
                     const WalkMode& mode, const WalkHooks& hooks = {});

/// Returns in ascending order the nodes after which the network may be cut: later nodes read this node's output and
/// none of earlier nodes. Input and outputs are not among them.
std::vector<int> cut_points(const Graph& graph);

}  // namespace octet
