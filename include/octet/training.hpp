// SPDX-License-Identifier: Apache-2.0
// Training in C++17: train() does what `octet train` does, from a recipe and images to a run directory with an int8
// checkpoint and a report. Link octet::training, which needs LibTorch; octet::runtime (octet.hpp), which runs the
// result, does not.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace octet::training {

enum class Status {
  promise = 1,   ///< a promise is broken: codes differ, training diverged, the GPU failed
  usage = 2,     ///< the recipe, a key or an argument is wrong
  data = 3,      ///< data or a file is missing, corrupt or not writable
  stopped = 130  ///< stop() was called; what was done is saved
};

/// A failure. The message names the file, the key and the cure.
class Error : public std::runtime_error {
 public:
  Error(Status status, const std::string& what) : std::runtime_error(what), status_(status) {}
  Status status() const { return status_; }

 private:
  Status status_;
};

/// An epoch that has ended.
struct Epoch {
  std::string phase;  ///< "float", "qat" or "float_control"
  int epoch = 0;      ///< its number, from 1 within the phase
  double train_loss = 0, validation_loss = 0;
  double validation_top1 = 0;  ///< 0 to 1; for segmentation the fraction of pixels that are right
};

struct Options {
  std::string directory;         ///< the run's directory, made here; "": runs/RECIPE-1, -2, ...
  std::vector<std::string> set;  ///< overrides of keys, such as "train.epochs=3", checked like the recipe
  std::string device = "auto";   ///< "cpu", "cuda" (the first GPU), or "auto": cuda if it can be used
  bool resume = false;           ///< continues the run in `directory`, which must have the same recipe
  bool quiet = false;            ///< no progress on stderr
  std::function<void(const Epoch&)> epoch_done;  ///< called in the thread of train(); an exception ends training
};

/// A row of the report, measured on the test images.
struct Row {
  std::string name;       ///< "float", "ptq", "simulation", "qat_graph", or an engine
  double top1 = 0;        ///< 0 to 1
  long images = 0;        ///< number of test images
  long bytes = 0;         ///< size of its weights' file; 0 if it has none
  long differing = -1;    ///< number of predictions that differ from the QAT graph's; -1 for the QAT graph itself
  double per_second = 0;  ///< images per second
};

struct Result {
  std::string directory, checkpoint, report;  ///< the run's directory, its int8 checkpoint, its report.html
  std::vector<Row> rows;
};

/// Trains, exports, and compares the codes of all engines with those of the trained network. `recipe` is a file
/// (recipes/README.md). Throws Error, also if a single code differs, what epoch_done throws, std::bad_alloc, and
/// std::filesystem::filesystem_error. Only one call at a time is allowed in a process, because LibTorch's threads and
/// settings, stopping and progress belong to the process. Installs no signal handler.
Result train(const std::string& recipe, const Options& options = {});

/// Ends the running train() after its current step. May be called from any thread, from epoch_done, or from a signal
/// handler.
void stop() noexcept;

/// Writes an int8 checkpoint as ONNX in QDQ form, for "onnxruntime", "openvino" or "tensorrt" (symmetric_s8 networks
/// only).
void export_onnx(const std::string& checkpoint, const std::string& file, const std::string& profile = "onnxruntime");

}  // namespace octet::training
