// SPDX-License-Identifier: Apache-2.0
// int8 of a float network by images or ready inputs alone, without recipe, labels or training: `octet quantize`.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/safetensors.h"
#include "src/engine/engine.h"
#include "src/eval/compare.h"
#include "src/net/int8_graph.h"
#include "src/recipe/recipe.h"
#include "src/train/model/model.h"
#include "src/train/repair/layer_costs.h"
#include "src/train/repair/output_error.h"
#include "trainers/loop/input_tensors.h"
#include "trainers/run/run.h"

namespace octet {

/// Which repairs of weights and biases are tried. The network keeps those that lose less on images held back for it.
enum class Repair {
  none,
  bias,  ///< bias correction: one more pass over a few images; with depthwise layers a calibration more
  fast,  ///< and equalization of channels: seconds
  full,  ///< and learned rounding (AdaRound), and distillation of a classifier: minutes on a GPU
};
inline constexpr std::array<Named<Repair>, 4> kRepairs = {
    {{Repair::none, "none"}, {Repair::bias, "bias"}, {Repair::fast, "fast"}, {Repair::full, "full"}}};

struct QuantizeRequest {
  std::string network;  ///< an ONNX file, or the name of a network of the zoo
  std::string weights;  ///< of a network of the zoo: .safetensors, .pth
  int classes = 0;      ///< of a network of the zoo: 0 is 1000; an ONNX file has its own
  int image_size = 0;   ///< height and width where an ONNX file leaves them open or takes others; zoo: 0 is 224
  std::vector<std::string> outputs;  ///< of an ONNX file: the network ends at these values; empty: the file's own
  std::vector<std::string> images;   ///< as ImageList takes them
  std::string tensors;               ///< in place of images: a file of inputs, as read_input_tensor() takes it
  std::vector<float> inputs;         ///< in place of both: the inputs, [N, C, H, W]
  int limit = 300;                   ///< at most so many of the images are used, evenly spaced
  Preprocessing preprocessing;       ///< of images, with mean and std for each channel
  QuantRecipe quant;
  CalibrateRecipe calibrate;                ///< `method` only if it is set below
  std::optional<CalibrationMethod> method;  ///< empty: the one that loses least, also by edge
  Repair repair = Repair::bias;
  int alone = 6;  ///< at most so many layers are measured alone
  uint64_t seed = 1;
  int threads = 0;  ///< 0: all cores
};

struct Quantized {
  Int8Graph graph;
  size_t calibrated_on = 0, chosen_on = 0, measured_on = 0;  ///< images; no image is in two of the three
  ChosenRanges ranges;
  struct RepairTrial {
    std::string name;
    double lost = 0;      ///< on the images of chosen_on
    std::string refused;  ///< why the network does not allow it; "": it was tried
  };
  std::vector<RepairTrial> repairs;  ///< in the order tried; empty without repairs
  size_t repaired = 0;               ///< the one taken
  struct ChannelScales {
    std::vector<std::string> lookups;  ///< the functions whose channels have scales of their own; empty: none
    double before = 0, lost = 0;       ///< without and with them, on the images of chosen_on
  };
  ChannelScales channel_scales;
  std::vector<OutputError> outputs;  ///< on the images of measured_on
  std::vector<LayerCost> layers;     ///< on the first eight of them or a few more, in the order of the graph
  size_t float_bytes = 0;            ///< of the float weights
  Comparison comparison;             ///< of the QAT graph with the engines, over a few images
};

struct FloatNetwork {
  Graph graph;
  std::shared_ptr<const TensorFile> onnx_weights;  ///< null: of the zoo
  std::string unlike;                              ///< ImportedNetwork::unlike
};

/// Returns the float network of the request, so that the preprocessing can follow its input. An ONNX file that ends in
/// what is no layer (a detector's decoding) is imported up to there: then request.outputs is set, and the user told.
/// Throws Error(usage) and Error(data).
FloatNetwork open_network(QuantizeRequest& request);

/// Returns the program that computes a network, which is open_network(request), in float32, for images prepared as the
/// request says. Throws as quantize() does.
std::unique_ptr<Program> unquantized_program(const QuantizeRequest& request, FloatNetwork network, at::Device device);

/// A float network with images that are dealt out: data.calibration, data.validation to choose by, data.test.
struct Unlabelled {
  Run run;
  std::shared_ptr<InputTensors> tensors;  ///< null: images
  Weights weights;                        ///< nothing may write to them
};

/// Opens network, weights and images of a request. Throws as quantize() does.
Unlabelled open_unlabelled(const QuantizeRequest& request, FloatNetwork network, at::Device device);

/// Quantizes `network`, which is open_network(request). Throws Error(usage) and Error(data) for a network or images
/// that cannot be used, naming file and cure; Error(promise) for weights and activations that are not finite, naming
/// the layer; Error(interrupted).
Quantized quantize(const QuantizeRequest& request, FloatNetwork network, at::Device device);

}  // namespace octet
