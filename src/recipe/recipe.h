// SPDX-License-Identifier: Apache-2.0
// A recipe: everything that decides a run, as plain structs. recipes/README.md explains every key;
// src/recipe/schema.cpp is the one table from which parsing, checking, writing and the documentation test are made.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/names.h"
#include "src/data/dataset.h"
#include "src/net/int8_graph.h"
#include "src/net/zoo.h"
#include "src/quant/calibrate.h"
#include "src/quant/plan.h"
#include "src/quant/weight_scales.h"

namespace octet {

/// What stands for a choice that is empty: octet then chooses by what it measures.
inline constexpr std::string_view kAuto = "auto";

/// Returns the name of a choice, or kAuto.
template <class E, size_t N>
std::string_view name_or_auto(const std::array<Named<E>, N>& table, const std::optional<E>& choice) {
  return choice ? name_in(table, *choice) : kAuto;
}

// The choices of a recipe that no other layer has an enum for.

enum class OptimizerKind { sgd, adamw };
inline constexpr std::array<Named<OptimizerKind>, 2> kOptimizers = {
    {{OptimizerKind::sgd, "sgd"}, {OptimizerKind::adamw, "adamw"}}};

/// How the learning rate changes over the steps.
enum class ScheduleKind { step, cosine, one_cycle, yolox, constant };
inline constexpr std::array<Named<ScheduleKind>, 5> kSchedules = {{{ScheduleKind::step, "step"},
                                                                   {ScheduleKind::cosine, "cosine"},
                                                                   {ScheduleKind::one_cycle, "one_cycle"},
                                                                   {ScheduleKind::yolox, "yolox"},
                                                                   {ScheduleKind::constant, "constant"}}};

/// The type in which several processes sum their gradients.
enum class ExchangeType { fp32, fp16 };
inline constexpr std::array<Named<ExchangeType>, 2> kExchangeTypes = {
    {{ExchangeType::fp32, "fp32"}, {ExchangeType::fp16, "fp16"}}};

/// How weights are rounded to codes after training.
enum class WeightRounding { nearest, adaround, block };
inline constexpr std::array<Named<WeightRounding>, 3> kWeightRoundings = {
    {{WeightRounding::nearest, "nearest"}, {WeightRounding::adaround, "adaround"}, {WeightRounding::block, "block"}}};

/// Whether functions get a scale for each channel: automatic: where much is lost; on: where any less is lost with them
/// (trainers/run/auto_ranges.cpp).
enum class ScaleChannels : uint8_t { off, on, automatic };
inline constexpr std::array<Named<ScaleChannels>, 3> kScaleChannels = {
    {{ScaleChannels::automatic, "auto"}, {ScaleChannels::on, "true"}, {ScaleChannels::off, "false"}}};

/// Whether the training set stays in GPU memory; automatic: where it fits and the transform allows.
enum class ResidentImages { automatic, on, off };
inline constexpr std::array<Named<ResidentImages>, 3> kResidentImages = {
    {{ResidentImages::automatic, "auto"}, {ResidentImages::on, "on"}, {ResidentImages::off, "off"}}};

// The sections of a recipe. Where a comment says "read_recipe() replaces", a recipe that was read has another value.

/// Who decodes training images.
enum class Decoding { cpu, gpu };
inline constexpr std::array<Named<Decoding>, 2> kDecodings = {{{Decoding::cpu, "cpu"}, {Decoding::gpu, "gpu"}}};

/// Whether a value is its default because a recipe gives none. That makes no other recipe of it: all are equal.
struct Unset {
  bool yes = false;
  friend bool operator==(Unset, Unset) { return true; }
};

struct DataRecipe {
  std::string format =
      "fashion_mnist";  ///< fashion_mnist, mnist, cifar10, cifar100, image_folder, coco, voc, yolo, synthetic
  std::string path;  ///< folder, of image_folder, coco, voc and yolo or a .tar; empty: Debian's folder of fashion_mnist
  std::string train = "train";           ///< image_folder: subfolder, "" for path itself; coco: src/data/box_folder.h
  std::string validation;                ///< as train: images for every choice; "": cut from the training set by seed
  std::string test = "test";             ///< as train: images for the final figures, on which nothing is chosen
  std::string test_path;                 ///< where the test images are, if not in path
  std::string classes;                   ///< image_folder, coco: file with one class on each line; empty: class_names
  std::vector<std::string> class_names;  ///< names of the classes; empty: sorted folders, categories
  int ignore_index = kUnlabelled;        ///< image_folder with labels pixels: the number of pixels without a class
  bool leave_out_faults = false;         ///< boxes: images without a file and boxes without a class are left out
  double validation_fraction =
      0.02;                ///< share of the training set; read_recipe() replaces it by 0 if validation is set
  int channels = 0;        ///< read_recipe() replaces 0 by the format's
  int image_size = 0;      ///< height and width of the network's input; read_recipe() replaces 0 by the format's
  Unset usual_image_size;  ///< image_size is the format's, since the recipe gives none
  int image_width = 0;     ///< its width, if another than the height
  Fit fit = Fit::crop;     ///< read_recipe() replaces it by letterbox_corner for coco whose recipe does not set it
  ChannelOrder channel_order = ChannelOrder::rgb;
  /// exif: images are turned as their EXIF data says; as_stored: they are not. read_recipe() replaces it by exif for
  /// image_folder and coco whose recipe does not set it.
  Orientation orientation = Orientation::as_stored;
  int resize = 0;  ///< shorter side before the crop; 0: no resize. Not used in training with random_resized_crop
  std::vector<double> mean, std;  ///< for each channel, of pixels in 0..1; read_recipe() replaces [] by the format's
  int workers = 2;
  Decoding decode = Decoding::cpu;
  int synthetic_size = 1024, synthetic_classes = 10;
  Labels labels = Labels::image;  ///< read_recipe() replaces it by boxes for coco whose recipe does not set it
  // Augmentation; src/data/transform.h explains the steps.
  int pad = 0;
  bool flip = false;
  int cutout = 0;
  bool random_resized_crop = false;
  double crop_area_min = 0.08;
  std::vector<double> color_jitter;                         ///< brightness, contrast, saturation, hue; empty: none
  int rand_augment = 0, rand_augment_magnitude = 9;         ///< operations an image; how strong they are
  double random_erasing = 0;                                ///< the share of images that lose a rectangle
  double mixup_alpha = 0;                                   ///< with labels image: of the weights of two images
  double scale = 0, translate = 0, degrees = 0, shear = 0;  ///< with another fit than crop
  bool hsv = false;                                         ///< with another fit than crop: changed colours
  double mosaic = 0, mixup = 0;  ///< with another fit than crop: shares of images made of several
  double multi_scale = 0;        ///< with another fit than crop: by how much sizes of batches differ
  int mosaic_off = 15;           ///< the last epochs of a phase, without mosaic and mixup
  int limit_train = 0, limit_validation = 0, limit_test = 0;  ///< uses so many images only, chosen by seed; 0: all
  int width() const { return image_width > 0 ? image_width : image_size; }  ///< of the network's input
  bool operator==(const DataRecipe&) const = default;
};

struct ModelRecipe {
  std::string name = "small_cnn";
  std::string shortcut = "B";
  double width = 1.0;
  std::string stem = "auto";
  bool folded = false;
  double dropout = 0.0;
  bool whiten = false;                  ///< the first layer begins as trainers/run/starting_weights.cpp has it
  std::string weights;                  ///< .safetensors, .pth, .th; empty: random, or those of `onnx`
  std::vector<std::string> new_layers;  ///< begin at random in spite of `weights`
  std::string onnx;                     ///< for name onnx: the file
  std::vector<NodeSpec> graph;
  std::vector<std::string> outputs;
  bool operator==(const ModelRecipe&) const = default;
};

struct OptimizerRecipe {
  int epochs = 0;
  int val_interval = 1;  ///< epochs from one validation to the next; the last epoch is always validated
  int batch_size = 128;
  OptimizerKind optimizer = OptimizerKind::sgd;
  double learning_rate = 0;  ///< 0: the trainer chooses it (trainers/run)
  double momentum = 0.9;
  bool nesterov = true;
  double beta1 = 0.9, beta2 = 0.999;
  double weight_decay = 5e-4;
  ScheduleKind schedule = ScheduleKind::cosine;
  std::vector<int> milestones;  ///< schedule step: the epochs after which the rate is multiplied by gamma
  double gamma = 0.1;
  double warmup_epochs = 0.0;
  double label_smoothing = 0.0;
  double ema = 0.0;            ///< decay of the weights' moving average; 0: off
  double ema_ramp = 0.0;       ///< steps over which that decay rises; 0: within the first few
  double clip_gradient = 0.0;  ///< largest global norm; 0: off
  Precision precision = Precision::fp32;
  bool channels_last = true;
  bool sync_batch_norm = false;  ///< several processes: statistics are those of the whole batch
  bool box_l1 = false;           ///< with labels boxes: the last data.mosaic_off epochs have YOLOX's L1 loss, too
  bool operator==(const OptimizerRecipe&) const = default;
};

struct CalibrateRecipe {
  int images = 1024;  ///< how many training images are used
  int batch_size = 64;
  std::optional<CalibrationMethod> method;  ///< empty: the ranges that lose least at the outputs (trainers/run)
  double percentile = 99.99;                ///< method percentile: share of the values within the range, in %
  bool equalize = false;                    ///< equalizes channels between layers (src/quant/equalize.h)
  ScaleChannels channel_scales = ScaleChannels::off;
  bool bias_correction = false;
  WeightRounding rounding = WeightRounding::nearest;
  int rounding_steps = 10000;  ///< adaround, block: steps for each layer or block
  double rounding_learning_rate = 0.01;
  double rounding_drop = 0;  ///< block: share of activations that a step does not quantize
  int repair_images = 256;   ///< bias_correction, adaround, block: how many images they use, all in memory
  int distill_steps = 0;     ///< steps that train the whole network after the other repairs; 0: none
  double distill_learning_rate = 1e-3;
  double distill_temperature = 4;
  bool operator==(const CalibrateRecipe&) const = default;
};

struct QuantRecipe {
  ActivationScheme activation = ActivationScheme::affine_u8;
  int activation_bits = 8;
  int weight_bits = 8;
  int input_bits = 8, first_layer_bits = 8, last_layer_bits = 8;
  int residual_bits = 0;          ///< of what multiplies nothing; 0: activation_bits
  std::vector<LayerBits> layers;  ///< later entries win over earlier ones
  WeightRange weight_codes = WeightRange::symmetric;
  Granularity weight_granularity = Granularity::per_channel;
  WeightCalibrator weight_calibrator = WeightCalibrator::minmax;
  Sparsity sparsity = Sparsity::none;  ///< of weights
  std::optional<EdgeScales> scales;    ///< of activations, during QAT; empty: what suits their bits (trainers/run)
  ObserverKind observer = ObserverKind::moving_average;  ///< with scales observed
  double averaging = 0.01;                               ///< weight of a new batch in the moving average

  int least_activation_bits() const;  ///< the fewest that any key gives to activations
  bool operator==(const QuantRecipe&) const = default;
};

/// QatRecipe::freeze_batch_norm where nothing speaks against it.
inline constexpr double kUsualFreeze = 0.5;

/// Training after PTQ; epochs 0: PTQ only.
struct QatRecipe : OptimizerRecipe {
  /// Share of the QAT steps after which BatchNorm's statistics are fixed; empty: what suits the ranges of activations
  /// (trainers/run).
  std::optional<double> freeze_batch_norm;
  QatForward forward = QatForward::simulation;  ///< once statistics are fixed
  bool recompute = false;                       ///< until then: QuantizerOptions::recompute
  double freeze_observers = 0.75;  ///< scales observed: later than BatchNorm, whose freezing changes the ranges
  double scale_learning_rate = 0;  ///< of scales that learn; 0: learning_rate, or a share of it (trainers/run)
  double distill_weight = 0;       ///< share of the loss that distills the float network; 0: no distillation
  double distill_temperature = 4;
  bool float_control = false;  ///< also trains the float network for as many epochs, for comparison
  bool operator==(const QatRecipe&) const = default;
};

struct EvaluateRecipe {
  int batch_size = 64;
  std::vector<std::string> engines = {"auto"};  ///< names of engines, or auto for those of the machine
  std::string fallback = "none";                ///< the engine for nodes that cudnn and cutlass cannot run
  int reference_images = 0;                     ///< how many test images the slow reference engine runs; 0: all
  int latency_images = 100;                     ///< how many images are timed one by one; 0: none
  bool operator==(const EvaluateRecipe&) const = default;
};

/// Training on the GPU.
struct CudaRecipe {
  bool benchmark = true;       ///< cuDNN times its algorithms once and keeps the fastest
  bool deterministic = false;  ///< the same bits in every run
  bool tf32 = true;            ///< fp32 convolutions run on tensor cores, rounded to TF32
  bool graph = true;           ///< steps are captured as a CUDA graph and replayed
  ResidentImages resident_images = ResidentImages::automatic;
  bool operator==(const CudaRecipe&) const = default;
};

/// Training in several processes, each with a GPU or on the CPU.
struct ParallelRecipe {
  ExchangeType exchange = ExchangeType::fp32;
  std::vector<std::string>
      stages;             ///< layers after which the network is cut into a part for each process; empty: not cut
  int micro_batches = 8;  ///< stages: number of parts of a batch, which go through the stages one after the other
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

/// Returns whether data.train and data.test name the same images, as for a sample without a test part.
bool tests_on_training_images(const DataRecipe& data);

/// Reads a recipe, applies overrides of the form "key.path=value", fills in what follows from data.format (path,
/// channels, image_size, mean, std) and checks it. Throws Error(usage): "recipe.yaml:12:5: quant.activaton: unknown
/// key; did you mean 'activation'? allowed: ...". Paths inside a recipe are relative to the working directory.
Recipe read_recipe(const std::string& path, const std::vector<std::string>& overrides = {});
Recipe parse_recipe(const std::string& text, const std::string& name, const std::vector<std::string>& overrides = {});

/// Reads the recipe of a run directory, which write_recipe() wrote. A key that is missing was not known to the octet
/// that wrote it, and keeps the meaning of that time: without data.orientation images are read as stored.
Recipe read_run_recipe(const std::string& path, const std::vector<std::string>& overrides = {});

/// Returns the recipe with every key, as YAML from which read_recipe() makes the same Recipe.
std::string write_recipe(const Recipe& recipe);

/// Returns the part of the recipe that trained weights depend on: all but `evaluate` and the two val_interval, which
/// get their defaults.
Recipe training_part(Recipe recipe);

/// Returns the SHA-256 of write_recipe(), in hexadecimal digits.
std::string recipe_hash(const Recipe& recipe);

/// Returns the SHA-256, in hexadecimal digits, of the keys and values that differ from a default Recipe. A later octet,
/// whose recipes have more keys, computes the same hash and can resume what an earlier one began, unless a default has
/// changed.
std::string hash_of_changes(const Recipe& recipe);

/// What is wrong with evaluate.fallback, or a command's --fallback, for the engines that are given.
enum class FallbackFault {
  none,
  missing,  ///< an engine cannot run every node (not the input, for example) and has no fallback
  useless,  ///< all engines run every node, so the fallback changes nothing
};

/// Returns the first of `engines` that cannot run every node (cudnn, cutlass), or "".
std::string partial_engine(const std::vector<std::string>& engines);

FallbackFault fallback_fault(const std::vector<std::string>& engines, const std::string& fallback);

}  // namespace octet
