// A run: its recipe with everything the recipe names opened and built; and what a finished run left in its directory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/common/folder_lock.h"
#include "src/graph/graph.h"
#include "src/graph/int8_graph.h"
#include "src/model/model.h"
#include "src/qat/quantized_model.h"
#include "src/recipe/recipe.h"
#include "src/run/run_data.h"
#include "src/run/run_directory.h"
#include "trainers/ranks/ranks.h"

namespace octet {

class EventFile;
struct EpochMetrics;

struct Run {
  Recipe recipe;
  RunDirectory directory;
  RunData data;
  Graph graph;  ///< the float network, not fused
  Preprocessing preprocessing;
  at::Device device = at::kCPU;                         ///< where it trains, calibrates and evaluates
  std::shared_ptr<Ranks> ranks;                         ///< that train it together; null: this process alone
  std::string command, machine;                         ///< what its report says of them
  std::function<void(const EpochMetrics&)> epoch_done;  ///< told by the rank that writes; may be empty
  std::shared_ptr<EventFile> events;                    ///< for TensorBoard; null: none are written

  bool writes() const { return ranks == nullptr || ranks->first(); }  ///< this process speaks, and writes files
};

/// Opens the data and builds the graph. Sets the number of threads LibTorch uses (without `threads` the ranks of a host
/// share its cores), and on a GPU its switches (trainers/gpu.h).
Run open_run(const Recipe& recipe, const RunDirectory& directory, at::Device device = at::kCPU,
             std::shared_ptr<Ranks> ranks = nullptr);

/// Makes the folders and writes recipe.yaml, command.txt and environment.json. A folder that already holds something is
/// an Error(usage), unless `resume` is set and it holds a run of the very same recipe: then a line is added to
/// command.txt, and another device than the run began on is told. While the lock lives no other process may start here:
/// Error(usage).
struct RunStart {
  std::string command;           ///< as typed
  std::string machine;           ///< "AMD EPYC ..., 16 cores; NVIDIA H200"
  at::Device device = at::kCPU;  ///< where to train
  bool resume = false;
  std::shared_ptr<Ranks> ranks;                              ///< null: alone
  std::function<void(const EpochMetrics&)> epoch_done = {};  ///< told what metrics.jsonl is; may be empty
  std::string go_on = {};  ///< the command by which a run that ended early goes on; "": not said
};
FolderLock start_run_directory(const RunDirectory& directory, const Recipe& recipe, const RunStart& start);

/// Of octet, LibTorch and the compiler, for environment.json and the report.
std::map<std::string, std::string> versions();

/// The first of "<parent>/<name>-1", "-2", ... that does not exist: the directory of a run without --out.
RunDirectory new_run_directory(const std::string& parent, const std::string& name);

/// recipe.model.weights if given, else those of recipe.model.onnx, else random by seed; on run.device, like all weights
/// of a run.
Weights starting_weights(const Run& run);

/// Stages of several processes exchange fp32 on CPUs: Error(usage) for a phase (its `name`: "train" or "qat") in
/// another.
void require_stage_precision(const OptimizerRecipe& recipe, const char* name, at::Device device);

/// Before anything is trained: throws Error(usage) when a phase cannot run as the recipe says on run.device.
void require_trainable(const Run& run);

/// Throws Error(usage) when `file`, which an int8 checkpoint is to be written to, holds other weights of the run.
void require_free_name(const RunDirectory& directory, const std::string& file);

QuantSpec quant_spec(const QuantRecipe& quant);
QuantizerOptions quantizer_options(const Recipe& recipe);

/// Ranges of activations follow the data in QAT (quant.scales: observed), else they stay as calibrated or learn.
bool observes(const QuantRecipe& quant);

/// Fake quantizers around `weights` (shared), as the recipe says; not calibrated.
QuantizedModel make_quantized(const Run& run, const Weights& weights);

/// Shows the calibration images to the observers and fixes all qparams with recipe.calibrate.method; before and after,
/// in place, the repairs of weights and biases that recipe.calibrate asks for.
void calibrate(QuantizedModel& model, const Run& run);

/// qat.safetensors: the weights and the quantizer's state, from which load_quantized() rebuilds the model exactly.
void save_quantized(const QuantizedModel& model, const std::string& path);

Weights load_float(const Run& run);             ///< float.safetensors
Weights load_float_control(const Run& run);     ///< float_control.safetensors
QuantizedModel load_quantized(const Run& run);  ///< qat.safetensors: after QAT, or after PTQ with qat.epochs 0

}  // namespace octet
