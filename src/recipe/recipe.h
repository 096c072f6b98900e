// A recipe: everything that decides a run, as plain structs. recipes/README.md lists every key; src/recipe/schema.cpp
// is the one table from which parsing, checking, writing and the documentation test are made. Only src/recipe knows
// yaml-cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace octet {

struct DataRecipe {
  std::string format = "fashion_mnist";  ///< fashion_mnist, mnist, cifar10, cifar100, image_folder, synthetic
  std::string path;                      ///< folder (image_folder: or a .tar); empty: Debian's for fashion_mnist
  std::string train = "train";           ///< image_folder: subfolder, "" for path itself
  std::string validation;                ///< the same, of every choice; "": cut from training by validation_fraction
  std::string test = "test";             ///< the same, of the final figures: nothing is chosen on it
  std::string test_path;                 ///< where the test images are, if not in path
  std::string classes;                   ///< image_folder: file with one class folder a line; empty: sorted folders
  double validation_fraction = 0.02;     ///< share of the training set, by seed; parsing: 0 where validation is named
  int channels = 0;                      ///< parsing replaces 0 by the format's
  int image_size = 0;  ///< height and width of the network's input; parsing replaces 0 by the format's
  /// exif: pictures are turned as their EXIF data says; as_stored. Parsing: exif for image_folder that says nothing.
  std::string orientation = "as_stored";
  int resize = 0;  ///< shorter side before the crop; 0: none. Training uses it if random_resized_crop is off
  std::vector<double> mean, std;  ///< one a channel, of pixels in 0..1; parsing replaces [] by the format's
  int workers = 2;
  int synthetic_size = 1024, synthetic_classes = 10;
  std::string labels = "image";  ///< image: a class for each picture; pixels: one for each pixel
  // augmentation
  int pad = 0;
  bool flip = false;
  int cutout = 0;
  bool random_resized_crop = false;
  double crop_area_min = 0.08;
  int limit_train = 0, limit_validation = 0, limit_test = 0;  ///< first N (by seed) only; 0: all
  bool operator==(const DataRecipe&) const = default;
};

struct GraphNodeRecipe {
  std::string name, op;
  std::vector<std::string> inputs;
  std::map<std::string, double> attributes;
  bool operator==(const GraphNodeRecipe&) const = default;
};

struct ModelRecipe {
  std::string name = "small_cnn";
  std::string shortcut = "B";
  double width = 1.0;
  std::string stem = "auto";
  bool folded = false;
  double dropout = 0.0;
  std::string weights;  ///< .safetensors, .pth, .th; empty: random, or those of `onnx`
  std::string onnx;     ///< for name onnx: the file
  std::vector<GraphNodeRecipe> graph;
  std::vector<std::string> outputs;
  bool operator==(const ModelRecipe&) const = default;
};

struct OptimizerRecipe {
  int epochs = 0;
  int batch_size = 128;
  std::string optimizer = "sgd";  ///< sgd, adamw
  double learning_rate = 0.1;
  double momentum = 0.9;
  bool nesterov = true;
  double beta1 = 0.9, beta2 = 0.999;
  double weight_decay = 5e-4;
  std::string schedule = "cosine";  ///< step, cosine, one_cycle, constant
  std::vector<int> milestones;      ///< step: epochs
  double gamma = 0.1;
  double warmup_epochs = 0.0;
  double label_smoothing = 0.0;
  double ema = 0.0;                ///< decay; 0: off
  double clip_gradient = 0.0;      ///< global norm; 0: off
  std::string precision = "fp32";  ///< fp32, bf16, fp16
  bool channels_last = true;
  bool sync_batch_norm = false;  ///< several processes: its statistics are of the whole batch
  bool operator==(const OptimizerRecipe&) const = default;
};

struct CalibrateRecipe {
  int images = 1024;  ///< from the training set
  int batch_size = 64;
  std::string method = "mse";  ///< minmax, percentile, mse, entropy
  double percentile = 99.99;
  bool equalize = false;  ///< channels between layers
  bool bias_correction = false;
  std::string rounding = "nearest";  ///< of weights: nearest, adaround, block
  int rounding_steps = 10000;        ///< adaround, block: for each layer or block
  double rounding_learning_rate = 0.01;
  double rounding_drop = 0;  ///< block: share of activations that steps do not quantize; 0: none
  int repair_images = 256;   ///< bias_correction, adaround, block: of images, held in memory together
  int distill_steps = 0;     ///< after the other repairs, of the whole network; 0: none
  double distill_learning_rate = 1e-3;
  double distill_temperature = 4;
  bool operator==(const CalibrateRecipe&) const = default;
};

/// Bits of single layers; 0: as the others.
struct LayerBitsRecipe {
  std::string match;  ///< a glob over names of layers
  int weight_bits = 0, activation_bits = 0;
  bool operator==(const LayerBitsRecipe&) const = default;
};

struct QuantRecipe {
  std::string activation = "affine_u8";  ///< symmetric_s8, unsigned_u8, affine_u8
  int activation_bits = 8;
  int weight_bits = 8;
  int input_bits = 8, first_layer_bits = 8, last_layer_bits = 8;
  int residual_bits = 0;                           ///< 0: activation_bits
  std::vector<LayerBitsRecipe> layers;             ///< later ones win
  std::string weight_codes = "symmetric";          ///< symmetric, full
  std::string weight_granularity = "per_channel";  ///< per_channel, per_tensor
  std::string weight_calibrator = "minmax";        ///< minmax, mse, lsq
  std::string sparsity = "none";                   ///< of weights: none, 2:4
  std::string scales = "fixed";                    ///< of activations, during QAT: fixed, observed, lsq, lsq_plus, pact
  std::string observer = "moving_average";         ///< scales observed: minmax, moving_average, histogram
  double averaging = 0.01;                         ///< moving_average's constant
  bool operator==(const QuantRecipe&) const = default;
};

struct QatRecipe : OptimizerRecipe {  ///< epochs 0: PTQ only; learning_rate 0: as suits the network, trainers/run
  QatRecipe() { learning_rate = 0; }
  double freeze_batch_norm = 0.5;       ///< after this share of the QAT steps
  int reestimate_batch_norm = 0;        ///< after the last step, over so many training images; 0: not
  double freeze_observers = 0.75;       ///< scales observed: later than BatchNorm, whose freezing moves the ranges
  double scale_learning_rate = 0;       ///< of scales that learn; 0: learning_rate
  double pact_decay = 2e-4;             ///< scales pact: L2 decay of the clipping levels
  double freeze_oscillating = 0;        ///< share of steps in which a frozen weight turned back, at the end; 0: off
  double freeze_oscillating_start = 0;  ///< the same at the start; 0: as at the end
  double distill_weight = 0;            ///< share of the float network's probabilities in the loss; 0: no distillation
  double distill_temperature = 4;
  bool float_control = false;  ///< trains the float network as long, to compare with
  bool operator==(const QatRecipe&) const = default;
};

struct EvaluateRecipe {
  int batch_size = 64;
  std::vector<std::string> engines = {"auto"};  ///< names, or auto: see the schema
  std::string fallback = "none";                ///< cudnn, cutlass: the engine for nodes they cannot run
  int reference_images = 0;                     ///< test images the slow reference runs; 0: all
  int latency_images = 100;                     ///< timed one by one; 0: none
  bool operator==(const EvaluateRecipe&) const = default;
};

struct CudaRecipe {                      ///< training on the GPU
  bool benchmark = true;                 ///< cuDNN tries its convolutions once and keeps the fastest
  bool deterministic = false;            ///< the same bits in every run
  bool tf32 = true;                      ///< fp32 convolutions on tensor cores
  bool graph = true;                     ///< steps are captured and replayed
  std::string resident_images = "auto";  ///< auto, on, off: the training set stays on the GPU
  bool operator==(const CudaRecipe&) const = default;
};

struct ParallelRecipe {             ///< several processes, each with a GPU or on the CPU
  std::string exchange = "fp32";    ///< of gradients: fp32, fp16
  std::vector<std::string> stages;  ///< layers after which the network is cut, a process a part; empty: it is not
  int micro_batches = 8;            ///< stages: parts of a batch that follow each other through them
  bool operator==(const ParallelRecipe&) const = default;
};

struct ExportRecipe {
  std::string file = "int8.safetensors";
  bool operator==(const ExportRecipe&) const = default;
};

struct Recipe {
  uint64_t seed = 1;
  int threads = 0;  ///< 0: all cores
  DataRecipe data;
  ModelRecipe model;
  OptimizerRecipe train;
  CalibrateRecipe calibrate;
  QuantRecipe quant;
  QatRecipe qat;
  CudaRecipe cuda;
  ParallelRecipe parallel;
  EvaluateRecipe evaluate;
  ExportRecipe export_;
  bool operator==(const Recipe&) const = default;
};

/// Whether data.train and data.test name the same images, as with a sample that has no test part.
bool tests_on_training_images(const DataRecipe& data);

/// Reads, applies `--set key.path=value` overrides, fills in what follows from data.format (path, channels, image_size,
/// mean, std), checks. Throws Error(usage): "recipe.yaml:12:5: quant.activaton: unknown key; did you mean 'activation'?
/// allowed: ...". Paths inside a recipe are relative to the working directory.
Recipe read_recipe(const std::string& path, const std::vector<std::string>& overrides = {});
Recipe parse_recipe(const std::string& text, const std::string& name, const std::vector<std::string>& overrides = {});

/// The recipe of a run directory, which write_recipe() wrote. A key that the octet which wrote it did not know has the
/// meaning that it had then: without data.orientation pictures were read as stored.
Recipe read_run_recipe(const std::string& path, const std::vector<std::string>& overrides = {});

/// The resolved recipe with every key, as YAML that read_recipe accepts and that gives the same Recipe.
std::string write_recipe(const Recipe& recipe);

/// What trained weights depend on: all but `evaluate`, which is left at its defaults.
Recipe training_part(Recipe recipe);

/// SHA-256 of write_recipe(), hex.
std::string recipe_hash(const Recipe& recipe);

/// SHA-256, hex, of the keys that differ from a default Recipe's, with their values. A later octet, whose recipes have
/// more keys, gives the same, so what an earlier one began can be gone on with; where a default has changed it does
/// not.
std::string hash_of_changes(const Recipe& recipe);

}  // namespace octet
