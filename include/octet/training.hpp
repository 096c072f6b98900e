// SPDX-License-Identifier: Apache-2.0
// Training in C++17: train() does what `octet train` does, from a recipe and images to a run directory with an int8
// checkpoint and a report; quantize() does what `octet quantize` does, from an ONNX file and images without labels to
// an int8 checkpoint. Link octet::training, which needs LibTorch; octet::runtime (octet.hpp), which runs the result,
// does not.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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
  int epoch = 0;      ///< its number, from 1 within the phase; lower than before: the phase has begun again
  double train_loss = 0;
  // Empty after an epoch that was not validated (keys train.val_interval and qat.val_interval).
  std::optional<double> validation_loss;
  std::optional<double> validation_top1;  ///< 0 to 1; for segmentation the fraction of pixels that are right
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

/// What quantize() is asked for. Members are the options of `octet quantize` (docs/QUANTIZE.md), which says more.
struct QuantizeOptions {
  // What it is calibrated on, one of the three:
  std::vector<std::string> images;  ///< folders, .tar archives, files and patterns; no labels
  std::string tensors;  ///< a .npz, .npy or .safetensors file of inputs, [N, C, H, W], as the float network reads them
  std::vector<float> inputs;  ///< or such inputs themselves, one after the other

  // How images become the input. Left out with tensors and inputs.
  std::string preset;                   ///< "imagenet", "yolo", "yolox", "none"; what follows differs from it
  std::string fit, order, orientation;  ///< "crop", "stretch", ...; "rgb", "bgr"; "exif", "as_stored"
  std::vector<double> mean, std;        ///< one for each channel, or one for all
  std::optional<double> scale;          ///< 1: mean and std are of pixels in 0..1; 255: in 0..255
  std::optional<int> resize;            ///< the shorter side before the centre crop; 0: no resize

  std::string classes_file;              ///< names of the classes, one a line, which the checkpoint keeps
  int limit = 300;                       ///< at most so many images or inputs are used
  uint64_t seed = 1;                     ///< which of them calibrate, choose and measure
  std::string method = "auto";           ///< of the ranges
  std::optional<double> percentile;      ///< of method "percentile"
  std::string activation = "affine_u8";  ///< or "unsigned_u8", "symmetric_s8"
  std::string repair = "bias";           ///< or "none", "fast", "full": repairs of weights that are tried
  std::string weights;                   ///< of a network of the zoo
  int classes = 0;                       ///< of a network of the zoo; 0: 1000
  int image_size = 0;                    ///< height and width where the network leaves them open, or takes others
  std::vector<std::string> outputs;      ///< the network ends at these values of the ONNX file

  std::string out;              ///< the checkpoint; "": net.int8.safetensors, here, for net.onnx
  std::string onnx;             ///< also an ONNX file in QDQ form; "": none
  std::string profile;          ///< of that file: "onnxruntime" (as ""), "openvino", "tensorrt"
  bool force = false;           ///< files that exist are replaced
  std::string device = "auto";  ///< "cpu", "cuda", or "auto": cuda if it can be used
  int threads = 0;              ///< 0: all cores
  bool quiet = false;           ///< no progress on stderr
};

/// What int8 costs an output, on images or inputs that were not calibrated on.
struct OutputCost {
  std::string name;
  double sqnr_db = 0;     ///< signal to quantization noise; infinite if nothing changes
  double lost = 0;        ///< mean over images of noise / (noise + signal), 0 to 1
  double same_class = 0;  ///< share of the images, or of their pixels, with the same largest channel
};

struct Quantized {
  std::string checkpoint;  ///< the file
  std::vector<OutputCost> outputs;
  std::string repairs;  ///< which were taken; "" if none were tried
  long codes = 0;       ///< that were compared between engines and the quantized graph: all are equal
};

/// Quantizes a float network, an ONNX file or a network of the zoo with weights, without labels or training, and proves
/// the codes of all engines. Throws as train() does, and obeys its rules about threads and processes.
Quantized quantize(const std::string& network, const QuantizeOptions& options);

/// Ends the running train() after its current step, and the running quantize(), of which nothing is written. May be
/// called from any thread, from epoch_done, or from a signal handler.
void stop() noexcept;

/// Writes an int8 checkpoint as ONNX in QDQ form, for "onnxruntime", "openvino" or "tensorrt" (symmetric_s8 networks
/// only).
void export_onnx(const std::string& checkpoint, const std::string& file, const std::string& profile = "onnxruntime");

}  // namespace octet::training
