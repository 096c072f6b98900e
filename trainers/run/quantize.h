// SPDX-License-Identifier: Apache-2.0
// int8 of a float network by images or ready inputs alone, without recipe, labels or training: `octet quantize`;
// and the files that it reads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/safetensors.h"
#include "src/data/image_options.h"
#include "src/engine/engine.h"
#include "src/eval/compare.h"
#include "src/net/int8_graph.h"
#include "src/recipe/recipe.h"
#include "src/train/model/model.h"
#include "src/train/repair/output_error.h"
#include "trainers/loop/input_tensors.h"
#include "trainers/run/float_file.h"
#include "trainers/run/ptq_search.h"
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

inline constexpr size_t kHeldBack = 32;  ///< images of each of the two parts that are not calibrated on, at most

/// Opens the images or ready inputs of the request and deals them out at random: run.data.calibration; validation,
/// which choices are made by; and test. Images that cannot be read are told. Returns null for images. Throws
/// Error(usage) and Error(data) for what cannot be used, naming file and cure.
std::shared_ptr<InputTensors> open_inputs(const QuantizeRequest& request, Run& run);

/// Calls take(x) with the network's inputs of those images, batch by batch, as input_batches() returns them.
void for_input_batches(const Run& run, const std::vector<size_t>& indices,
                       const std::function<void(const at::Tensor& x)>& take);

/// Returns the network's inputs of those images, normalized float [N, C, H, W] on the run's device, in batches.
std::vector<at::Tensor> input_batches(const Run& run, const std::vector<size_t>& indices);

/// Throws Error(data) for a set of black or equal inputs, whose ranges would be those of nothing.
void require_differences(const std::vector<at::Tensor>& batches, bool are_images);

/// Returns how many images calibration takes at once: on a GPU 64; on the host at most 8, and fewer of a network whose
/// layers' outputs would exceed 384 MiB. Few images' values stay in caches, and their memory is used again instead of
/// mapped anew.
int calibration_batch(const Run& run);

struct QuantizeOptions {
  /// Without what the members below say. Of images, tensors and inputs one is given.
  QuantizeRequest request;
  std::string method = "auto";  ///< or a calibration method
  std::optional<double> percentile;
  std::string repair = "bias", activation = "affine_u8";

  ImageOptions image;  ///< how images become the input

  std::string classes_file;  ///< names of the classes, a line a class; "": the checkpoint has none

  std::string out;                     ///< the checkpoint; "": the network's name and .int8.safetensors, here
  std::string onnx;                    ///< "": no ONNX file is written
  std::optional<std::string> profile;  ///< of the ONNX file; without: onnxruntime
  std::string html, svg;               ///< written by the caller; "": no page, no chart
  bool force = false;                  ///< files that exist are replaced
};

/// Quantizes the network and writes nothing. Throws as quantize() does, and Error(usage) for options that contradict
/// each other and files of the options that exist, before long work. device: auto, cpu or cuda.
Quantized quantize_network(QuantizeOptions& options, const std::string& device);

/// Quantizes the network and writes the checkpoint, whose path is then in options.out, and the ONNX file. Throws as
/// quantize_network() does.
Quantized quantize_files(QuantizeOptions& options, const std::string& device);

/// Opens the network of the options for images prepared as they say, not quantized. boxes: FloatFile::ends has the head
/// of a detector. Throws as quantize_network() does, and Error(usage) where the outputs are not those of the preset's
/// detectors.
FloatFile open_float_file(QuantizeOptions options, bool boxes, const std::string& device);

/// What search_network() found.
struct SearchedNetwork {
  BitSearch found;
  size_t images = 0;                ///< by which plans are judged
  std::optional<Quantized> chosen;  ///< quantize() with the chosen plan; none: no plan is chosen
};

/// Searches the bits of the network's layers by images without labels (search_bits_unlabelled()) and writes nothing.
/// Ranges are options.method's, and only what is chosen is repaired, as quantize() does it. Throws as
/// quantize_network() does, and Error(usage) for the method auto.
SearchedNetwork search_network(QuantizeOptions& options, const BitSearchOptions& search, const std::string& device);

}  // namespace octet
