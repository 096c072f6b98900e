// Training in C++17: train() does what `octet train` does, from a recipe and pictures to a run directory with an int8
// checkpoint and a report. Link octet::training, which needs LibTorch; what was trained runs by octet::runtime
// (octet.hpp), which does not.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace octet::training {

enum class Status {
  promise = 1,   ///< a promise is broken: codes differ, training diverged, the GPU failed
  usage = 2,     ///< a wrong recipe, key or argument
  data = 3,      ///< missing, corrupt or unwritable data or file
  stopped = 130  ///< stop(); what was done is saved
};

/// In octet's words: the file, the key and the cure.
class Error : public std::runtime_error {
 public:
  Error(Status status, const std::string& what) : std::runtime_error(what), status_(status) {}
  Status status() const { return status_; }

 private:
  Status status_;
};

struct Epoch {
  std::string phase;  ///< "float", "qat", "float_control"
  int epoch = 0;      ///< that is done, from 1 within its phase
  double train_loss = 0, validation_loss = 0;
  double validation_top1 = 0;  ///< 0 to 1; of segmentation the share of pixels
};

struct Options {
  std::string directory;                         ///< of the run, made here; "": runs/RECIPE-1, -2, ...
  std::vector<std::string> set;                  ///< "train.epochs=3": overrides keys of the recipe, checked like it
  std::string device = "auto";                   ///< auto (cuda where a GPU can be used), cpu, cuda: the first GPU
  bool resume = false;                           ///< goes on with the run in `directory`, which has this very recipe
  bool quiet = false;                            ///< no progress on stderr
  std::function<void(const Epoch&)> epoch_done;  ///< on the thread of train(); what it throws ends training
};

/// A row of the report, measured on the test images.
struct Row {
  std::string name;       ///< "float", "ptq", "simulation", "qat_graph", and the engines
  double top1 = 0;        ///< 0 to 1
  long images = 0;        ///< it was measured on
  long bytes = 0;         ///< of its weights on disk; 0: it has no file
  long differing = -1;    ///< predictions that are not the QAT graph's; -1: the graph itself
  double per_second = 0;  ///< images
};

struct Result {
  std::string directory, checkpoint, report;  ///< of the run; its int8 checkpoint; report.html
  std::vector<Row> rows;
};

/// Trains, exports, and compares all engines' codes with the trained network's. `recipe`: a file (recipes/README.md).
/// Throws Error, also where a single code differs; besides what epoch_done throws, std::bad_alloc and
/// std::filesystem::filesystem_error. One at a time in a process: LibTorch's threads and switches, the way to stop and
/// progress are the process's. Installs no handler of signals.
Result train(const std::string& recipe, const Options& options = {});

/// Ends the train() that runs, after its current step. From any thread, epoch_done or a handler of a signal.
void stop() noexcept;

/// An int8 checkpoint as ONNX in QDQ form, for "onnxruntime", "openvino" or "tensorrt" (networks of symmetric_s8).
void export_onnx(const std::string& checkpoint, const std::string& file, const std::string& profile = "onnxruntime");

}  // namespace octet::training
