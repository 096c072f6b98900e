// SPDX-License-Identifier: Apache-2.0
// A run: its recipe with everything that the recipe names opened and built, and what a finished run left in its
// directory.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "src/net/graph.h"
#include "src/net/int8_graph.h"
#include "src/net/onnx/onnx.h"
#include "src/recipe/recipe.h"
#include "src/recipe/run.h"
#include "src/train/model/model.h"
#include "src/train/qat/quantized_model.h"
#include "src/train/repair/output_error.h"
#include "trainers/parallel/ranks.h"

namespace octet {

class EventFile;
class HeldBack;
struct EpochMetrics;

struct Run {
  Recipe recipe;
  RunDirectory directory;
  RunData data;
  Graph graph;  ///< the float network, not fused
  /// With recipe.model.onnx: the values of the file that the network ends at, which are the recipe's, or a detector's
  /// last convolutions; the layers that begin anew, because the data set has another number of classes; and the file's
  /// weights, by the names of parameters(graph).
  std::vector<std::string> onnx_outputs, new_layers;
  std::shared_ptr<const TensorFile> onnx_weights;
  Preprocessing preprocessing;
  at::Device device = at::kCPU;                         ///< where it trains, calibrates and evaluates
  std::shared_ptr<Ranks> ranks;                         ///< the processes that train together; null: this one alone
  double float_rate = 0;                                ///< of the float phase (advice.h); train_float() may lower it
  double qat_share = 1;                                 ///< of qat_rate() (advice.h); train_qat() may lower it
  std::string command, machine;                         ///< for the report
  std::function<void(const EpochMetrics&)> epoch_done;  ///< called by the rank that writes; may be empty
  std::shared_ptr<EventFile> events;                    ///< for TensorBoard; null: no event file is written

  bool writes() const { return ranks == nullptr || ranks->first(); }  ///< this process prints and writes files
};

/// Opens the data and builds the graph. Sets the number of threads that LibTorch uses (without `threads` in the recipe
/// the ranks of a host share its cores) and, on a GPU, its switches (trainers/gpu.h).
Run open_run(const Recipe& recipe, const RunDirectory& directory, at::Device device = at::kCPU,
             std::shared_ptr<Ranks> ranks = nullptr);

/// Imports the network of an ONNX file up to `outputs`, or the file's own, and tells the user what the import notes.
/// One that ends in what is no layer (a detector's decoding) is imported up to there if `may_end_sooner`: then
/// `outputs` is set, and the user told.
ImportedNetwork import_network(const std::string& file, int image_size, bool may_end_sooner,
                               std::vector<std::string>& outputs);

/// Returns recipe.model.weights if given, else the weights of recipe.model.onnx, else random ones by seed. Like all
/// weights of a run they are on run.device.
Weights starting_weights(const Run& run);

QuantSpec quant_spec(const QuantRecipe& quant);

struct QatRate;  // trainers/run/advice.h

/// Returns qat_rate() of advice.h times Run::qat_share.
QatRate qat_rate(const Run& run);

/// Whether ranges of activations may follow the data in QAT: not with several processes on GPUs, nor with stages.
bool may_observe(const Run& run);

/// Returns where the ranges of activations come from in QAT: recipe.quant.scales, or what suits the run where that is
/// auto: lsq with fewer than eight bits; else observed, which start_qat() makes fixed unless the calibrated ranges lose
/// much and those that follow less, or fixed where may_observe() is false.
EdgeScales edge_scales(const Run& run);

/// Returns run.graph, with a scale for each channel of the functions for which `weights` have them.
Graph quantized_graph(const Run& run, const Weights& weights);

/// Returns the network with fake quantizers as the recipe says, not calibrated. It shares `weights`.
QuantizedModel make_quantized(const Run& run, const Weights& weights);

/// How ranges were found.
struct CalibratedRanges {
  std::string chosen;          ///< what calibrate.method auto chose, in a sentence; "" with another method
  RangeMethod taken;           ///< what most edges have
  RangeMethod alone;           ///< the best method that sees each edge's values alone, with which observers go on
  std::optional<double> lost;  ///< share of the outputs that the model loses with them; empty where it is not known
};

/// One pass over the calibration images for several models, whose float networks and edges are the same.
struct CalibrationPass {
  SeenImages images;                   ///< of joint_ranges(); their batches are set before, if any model chooses by it
  std::optional<QuantizedModel> seen;  ///< the model that saw the images; empty: the next one will
};

/// What calibrate() takes from others.
struct CalibrateWith {
  const HeldBack* held = nullptr;                   ///< by which method auto chooses; null: it makes its own
  const std::vector<at::Tensor>* images = nullptr;  ///< images_for_joint_ranges(); null: method auto reads them
  /// Called between ranges and repairs of weights, if given. It may change the ranges, and with method auto is to set
  /// them; images: of joint_ranges(), none with another method.
  std::function<void(const SeenImages& images)> ranges_set = {};
  CalibrationPass* pass = nullptr;  ///< in place of one of its own, and of `images`
};

/// Shows the calibration images to the observers and sets all quantization parameters by recipe.calibrate.method.
/// Before and after it makes the repairs of weights and biases that recipe.calibrate asks for, in place. With method
/// auto the ranges are those that lose least on validation images, without labels.
CalibratedRanges calibrate(QuantizedModel& model, const Run& run, const CalibrateWith& with = {});

/// Makes the repairs that calibrate() makes after it has set the ranges, of a model that has its ranges already.
void repair_calibrated(QuantizedModel& model, const Run& run);

/// calibrate(), and with recipe.calibrate.channel_scales: functions such as SiLU get a scale for each channel where the
/// network then loses less on validation images; `model` becomes another one then, with weights of its own. pass: that
/// of the model as it is given, as in CalibrateWith.
CalibratedRanges calibrate_as_recipe(QuantizedModel& model, const Run& run, CalibrationPass* pass = nullptr);

/// Writes qat.safetensors: weights and quantizer state, from which load_quantized() rebuilds the model exactly.
void save_quantized(const QuantizedModel& model, const std::string& path);

Weights load_float(const Run& run);             ///< float.safetensors
Weights load_float_control(const Run& run);     ///< float_control.safetensors
QuantizedModel load_quantized(const Run& run);  ///< qat.safetensors: after QAT, or after PTQ with qat.epochs 0

/// Returns `images` validation images, evenly spaced over the list, in batches of evaluate.batch_size: normalized float
/// [N, C, H, W] on the run's device. Bits and layers are chosen on them.
std::vector<at::Tensor> validation_inputs(const Run& run, int images);

// Before a run starts (start.cpp): what is refused, and its directory.

/// Throws Error(usage) if a phase cannot run as the recipe says on run.device.
void require_trainable(const Run& run);

/// Throws Error(usage) if a phase is to run on a CPU in another precision than fp32, in which stages exchange values
/// there. name: of the phase in the recipe, "train" or "qat".
void require_stage_precision(const OptimizerRecipe& recipe, const char* name, at::Device device);

/// Throws Error(usage) if `file`, where an int8 checkpoint is to be written, holds other weights of the run.
void require_free_name(const RunDirectory& directory, const std::string& file);

struct RunStart {
  std::string command;           ///< as typed
  std::string machine;           ///< "AMD EPYC ..., 16 cores; NVIDIA H200"
  at::Device device = at::kCPU;  ///< where to train
  bool resume = false;
  std::shared_ptr<Ranks> ranks;                              ///< null: this process alone
  std::function<void(const EpochMetrics&)> epoch_done = {};  ///< called after each epoch; may be empty
  std::string go_on = {};  ///< the command that continues a run that ended early; "": not printed
};
/// Creates the folders and writes recipe.yaml, command.txt and environment.json. Throws Error(usage) if the folder
/// already holds a file, unless `resume` is set and it holds a run of the same recipe: then a line is added to
/// command.txt, and a change of device is reported. While the lock lives, no other process can start in the folder.
FolderLock start_run_directory(const RunDirectory& directory, const Recipe& recipe, const RunStart& start);

/// Returns the versions of octet, LibTorch and the compiler, for environment.json and the report.
std::map<std::string, std::string> versions();

/// Returns the first of "<parent>/<name>-1", "-2", ... that does not exist: the directory of a run without --out.
RunDirectory new_run_directory(const std::string& parent, const std::string& name);

}  // namespace octet
