#include "src/recipe/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "src/common/error.h"
#include "src/quant/calibrator.h"
#include "src/quant/quant_spec.h"
#include "src/recipe/choices.h"
#include "src/recipe/fallback.h"

namespace octet {
namespace {

/// What is usual for a data format. Means and deviations are those of the training sets, of pixels in 0..1.
struct Format {
  std::string_view name, path;
  int channels, image_size;
  bool fixed;  ///< all images have this shape
  std::vector<double> mean, std;
};

/// Names of the same images: of subfolders "val" and "val/", too.
bool same_split(const std::string& a, const std::string& b) {
  const auto plain = [](const std::string& split) { return (std::filesystem::path(split) / "").lexically_normal(); };
  return plain(a) == plain(b);
}

/// Whether the images of that split of data.path are the test images.
bool is_tested(const DataRecipe& data, const std::string& split) {
  const bool elsewhere = !data.test_path.empty() && !same_split(data.test_path, data.path);
  return !elsewhere && same_split(split, data.test);
}

const Format& find_format(std::string_view name) {
  static const std::vector<Format> kFormats = {
      {"fashion_mnist", "/usr/share/datasets/fashion-mnist", 1, 28, true, {0.2860}, {0.3530}},
      {"mnist", "", 1, 28, true, {0.1307}, {0.3081}},
      {"cifar10", "", 3, 32, true, {0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}},
      {"cifar100", "", 3, 32, true, {0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}},
      {"image_folder", "", 3, 224, false, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}},
      {"synthetic", "", 3, 32, false, {0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}},
  };
  const auto found = std::find_if(kFormats.begin(), kFormats.end(), [&](const Format& f) { return f.name == name; });
  if (found == kFormats.end()) throw usage_error("data.format: unknown value '" + std::string(name) + "'");
  return *found;
}

class Checker {
 public:
  Checker(const Recipe& recipe, const Places& places, const std::string& name)
      : recipe_(recipe), places_(places), name_(name) {}

  void check_data() const {
    const DataRecipe& d = recipe_.data;
    const Format& format = find_format(d.format);
    const bool folder = d.format == "image_folder", synthetic = d.format == "synthetic";
    require(d.channels == 1 || d.channels == 3, "data.channels", fmt::format("{}; allowed: 1, 3", d.channels));
    require(!format.fixed || d.channels == format.channels, "data.channels",
            fmt::format("is {}, but images of {} have {}", d.channels, d.format, format.channels));
    require(!d.path.empty() || synthetic, "data.path", "needed for data.format " + d.format);
    require(!synthetic || d.test_path.empty(), "data.test_path", "synthetic images lie nowhere; leave it out");
    require(folder || d.classes.empty(), "data.classes", "only for data.format image_folder");
    check_splits(folder);
    check_labels(synthetic);
    const auto per_channel = [&](const std::vector<double>& values, const char* key) {
      require(values.size() == static_cast<size_t>(d.channels), key,
              fmt::format("has {} values, but data.channels is {}", values.size(), d.channels));
    };
    per_channel(d.mean, "data.mean");
    per_channel(d.std, "data.std");
    require(d.image_size >= 8, "data.image_size", fmt::format("{}; allowed: 8 .. 2048", d.image_size));
    require(d.resize == 0 || d.resize >= d.image_size, "data.resize",
            fmt::format("{} is below data.image_size {}", d.resize, d.image_size));
    require(!format.fixed || d.resize > 0 || d.image_size <= format.image_size, "data.image_size",
            fmt::format("{} is larger than the {} pixels of {}; set data.resize", d.image_size, format.image_size,
                        d.format));
    require(d.pad < d.image_size, "data.pad", fmt::format("{} is not below data.image_size {}", d.pad, d.image_size));
    require(d.cutout < d.image_size, "data.cutout",
            fmt::format("{} is not below data.image_size {}", d.cutout, d.image_size));
    require(!(d.random_resized_crop && d.pad > 0), "data.pad", "cannot be joined with data.random_resized_crop");
    require(!synthetic || d.synthetic_size >= d.synthetic_classes, "data.synthetic_size",
            fmt::format("{} is below data.synthetic_classes {}", d.synthetic_size, d.synthetic_classes));
  }

  void check_model() const {
    const bool graph = recipe_.model.name == "graph";
    require(graph != recipe_.model.graph.empty(), graph ? "model.name" : "model.graph",
            graph ? "graph needs the nodes in model.graph" : "only for model.name graph");
    const bool onnx = recipe_.model.name == "onnx";
    require(onnx != recipe_.model.onnx.empty(), onnx ? "model.name" : "model.onnx",
            onnx ? "onnx needs the network's file in model.onnx" : "only for model.name onnx");
    require(graph || onnx || recipe_.model.outputs.empty(), "model.outputs", "only for model.name graph or onnx");
  }

  void check_optimizer(const OptimizerRecipe& o, const std::string& section) const {
    const ScheduleKind schedule = value_named(kSchedules, o.schedule, section + ".schedule");
    const OptimizerKind optimizer = value_named(kOptimizers, o.optimizer, section + ".optimizer");
    require(schedule != ScheduleKind::step || !o.milestones.empty(), section + ".schedule",
            "step needs " + section + ".milestones");
    for (size_t i = 1; i < o.milestones.size(); ++i) {
      require(o.milestones[i - 1] < o.milestones[i], section + ".milestones", "must increase");
    }
    require(o.epochs == 0 || o.warmup_epochs < o.epochs, section + ".warmup_epochs",
            fmt::format("{0} leaves nothing of {1}.epochs {2}; set {1}.warmup_epochs below it, 0 for none",
                        o.warmup_epochs, section, o.epochs));
    require(!o.nesterov || optimizer != OptimizerKind::sgd || o.momentum > 0, section + ".nesterov",
            "needs " + section + ".momentum above 0");
    const int limit = recipe_.data.limit_train;
    require(o.epochs == 0 || limit == 0 || limit >= o.batch_size, "data.limit_train",
            fmt::format("{} is below {}.batch_size {}: no step", limit, section, o.batch_size));
  }

  void check_qat() const {
    check_optimizer(recipe_.qat, "qat");
    require(recipe_.qat.distill_weight == 0 || recipe_.qat.epochs > 0, "qat.distill_weight",
            "the float network teaches in QAT, but qat.epochs is 0; set epochs, or leave it out");
    require(recipe_.qat.distill_weight == 0 || recipe_.data.labels != "pixels", "qat.distill_weight",
            "the float network teaches the class of each image, but data.labels is pixels; leave it out");
    check_freezing();
    check_reestimation();
    require(!recipe_.qat.float_control || recipe_.qat.epochs > 0, "qat.float_control",
            "trains as long as QAT, but qat.epochs is 0; set epochs, or leave it out");
  }

  void check_reestimation() const {
    const long images = recipe_.qat.reestimate_batch_norm;
    require(images == 0 || recipe_.qat.epochs > 0, "qat.reestimate_batch_norm",
            "takes statistics anew for the weights that QAT trained, but qat.epochs is 0; set epochs, or 0 here");
    require(images != 1, "qat.reestimate_batch_norm", "1: one image can have no variance; allowed: 0, 2 .. 10000000");
    require(
        images == 0 || recipe_.qat.batch_size > 1, "qat.reestimate_batch_norm",
        "averages over batches of qat.batch_size, and one image can have no variance; set a batch_size of 2 or more");
  }

  /// Repairs of what is not trained any more.
  void check_calibrate() const {
    const CalibrateRecipe& calibrate = recipe_.calibrate;
    const bool trains = recipe_.qat.epochs > 0;
    const auto require_untrained = [&](bool asked, const char* key, const char* why) {
      require(!asked || !trains, key, fmt::format("{}; set qat.epochs: 0, or leave it out", why));
    };
    require_untrained(calibrate.equalize, "calibrate.equalize",
                      "repairs a network after training, and QAT would train another network than train did");
    require_untrained(calibrate.bias_correction, "calibrate.bias_correction",
                      "repairs a network after training, and QAT moves the biases itself");
    const WeightRounding rounding = value_named(kWeightRoundings, calibrate.rounding, "calibrate.rounding");
    const std::string learned =
        calibrate.rounding + " puts weights on their codes after training, and QAT would move them off again";
    require_untrained(rounding != WeightRounding::nearest, "calibrate.rounding", learned.c_str());
    require(
        calibrate.rounding_drop == 0 || rounding == WeightRounding::block, "calibrate.rounding_drop",
        fmt::format("drops quantization where blocks are rounded together, but calibrate.rounding is {}; set block, "
                    "or 0",
                    calibrate.rounding));
    const bool distills = calibrate.distill_steps > 0;
    require_untrained(distills, "calibrate.distill_steps",
                      "teaches a network after training; in QAT qat.distill_weight does");
    require(!distills || recipe_.data.labels != "pixels", "calibrate.distill_steps",
            "the float network teaches the class of each image, but data.labels is pixels; leave it out");
  }

  void check_quant() const {
    const QuantRecipe& quant = recipe_.quant;
    require(quant.residual_bits != 1, "quant.residual_bits", "1; allowed: 0, 2 .. 8");
    const bool trains = recipe_.qat.epochs > 0, weights = quant.weight_calibrator == "lsq";
    const EdgeScales scales = value_named(kEdgeScales, quant.scales, "quant.scales");
    const bool edges = learn(scales);
    require(scales == EdgeScales::fixed || trains, "quant.scales",
            fmt::format("{} {} in QAT, but qat.epochs is 0; set epochs, or fixed", quant.scales,
                        edges ? "learns scales" : "follows ranges"));
    check_learned(scales);
    check_sparsity();
    require(!weights || trains, "quant.weight_calibrator",
            "lsq learns scales in QAT, but qat.epochs is 0; set epochs, or mse, which lsq begins with");
    require(!weights || quant.weight_granularity == "per_channel", "quant.weight_calibrator",
            "lsq learns a scale for each channel, but quant.weight_granularity is " + quant.weight_granularity +
                "; set per_channel, or mse");
    require(
        recipe_.qat.scale_learning_rate == 0 || edges || weights, "qat.scale_learning_rate",
        "no scale learns; set quant.scales: lsq, lsq_plus or pact, or quant.weight_calibrator: lsq, or leave it out");
  }

  void check_parallel() const {
    check_phase(recipe_.train, "train");
    check_phase(recipe_.qat, "qat");
    const bool cut = !recipe_.parallel.stages.empty(), qat = recipe_.qat.epochs > 0;
    require(!cut || !qat || recipe_.quant.scales != "observed", "quant.scales",
            "observed follows whole batches, but parallel.stages sees each micro-batch by itself; set fixed, lsq, "
            "lsq_plus or pact");
    require(!cut || recipe_.qat.distill_weight == 0, "qat.distill_weight",
            "the float network that teaches is not cut by parallel.stages; leave one of them out");
    require(!cut || recipe_.model.dropout == 0 || recipe_.train.epochs == 0, "model.dropout",
            "parallel.stages trains the fused network, which has no dropout; set 0, or leave the stages out");
    require(!cut || !qat || recipe_.quant.sparsity == "none", "quant.sparsity",
            "2:4 is chosen from all weights in each step, of which parallel.stages has a part; leave one of them out");
    require(!cut || !qat || recipe_.qat.freeze_oscillating == 0, "qat.freeze_oscillating",
            "follows all weights, of which parallel.stages has a part; leave one of them out");
  }

  void check_results() const {
    const auto& engines = recipe_.evaluate.engines;
    require(!engines.empty(), "evaluate.engines", "names no engine; [auto] takes those of the machine");
    require(std::set<std::string>(engines.begin(), engines.end()).size() == engines.size(), "evaluate.engines",
            "an engine is given twice");
    const std::string& fallback = recipe_.evaluate.fallback;
    const std::string partial = partial_engine(engines);
    const FallbackFault fault = fallback_fault(engines, fallback);
    require(fault != FallbackFault::missing, "evaluate.engines",
            fmt::format("{0} cannot run every layer (the input, for one); add evaluate.fallback: cuda, or leave {0} "
                        "out",
                        partial));
    require(fault != FallbackFault::useless, "evaluate.fallback",
            fmt::format("{} is for engines cudnn and cutlass; add one to evaluate.engines, or leave the fallback out",
                        fallback));
    require(partial.empty() || recipe_.quant.activation == "symmetric_s8", "evaluate.engines",
            fmt::format("{0} convolves int8 codes and would run no layer of quant.activation {1}; set symmetric_s8, or "
                        "leave {0} out",
                        partial, recipe_.quant.activation));
    const std::filesystem::path file = recipe_.export_.file;
    require(file.extension() == ".safetensors" && !file.has_parent_path() && !file.stem().empty(), "export.file",
            fmt::format("'{}' is not a plain file name that ends in .safetensors", file.string()));
  }

 private:
  void check_phase(const OptimizerRecipe& o, const std::string& section) const {
    const ParallelRecipe& parallel = recipe_.parallel;
    if (o.epochs == 0) return;
    require(parallel.exchange != "fp16" || o.precision == "fp16", "parallel.exchange",
            fmt::format("fp16 loses gradients below 6e-8, and {}.precision {} has no loss scale that keeps them above; "
                        "set fp32, or precision fp16",
                        section, o.precision));
    if (parallel.stages.empty()) return;
    require(o.batch_size % parallel.micro_batches == 0, section + ".batch_size",
            fmt::format("{} is no multiple of parallel.micro_batches {}", o.batch_size, parallel.micro_batches));
    require(!o.sync_batch_norm, section + ".sync_batch_norm",
            "each micro-batch of parallel.stages has its own statistics: there is no whole batch on a GPU at a time; "
            "leave one of them out");
  }

  /// Which codes the methods that learn ranges were made for.
  void check_learned(EdgeScales scales) const {
    const std::string& activation = recipe_.quant.activation;
    require(scales != EdgeScales::lsq_plus || activation == "affine_u8", "quant.scales",
            fmt::format("lsq_plus learns zero points, and quant.activation {} has none; set affine_u8, or lsq",
                        activation));
    require(scales != EdgeScales::pact || activation != "symmetric_s8", "quant.scales",
            "pact gives all codes to [0, a] of a ReLU, and quant.activation symmetric_s8 has half of them below 0; set "
            "affine_u8 or unsigned_u8, or lsq");
    require(
        scales == EdgeScales::pact || recipe_.qat.pact_decay == QatRecipe().pact_decay, "qat.pact_decay",
        fmt::format("no clipping level learns with quant.scales {}; set pact, or leave it out", recipe_.quant.scales));
  }

  void check_sparsity() const {
    if (value_named(kSparsities, recipe_.quant.sparsity, "quant.sparsity") == Sparsity::none) return;
    require(recipe_.calibrate.rounding == "nearest", "quant.sparsity",
            fmt::format("2:4 needs its zeros, which calibrate.rounding {} may round up; set nearest, or none",
                        recipe_.calibrate.rounding));
    require(recipe_.calibrate.distill_steps == 0, "quant.sparsity",
            "2:4 needs its zeros, which calibrate.distill_steps would move; leave one of them out");
    require(recipe_.qat.freeze_oscillating == 0, "quant.sparsity",
            "2:4 chooses by magnitude which weights are 0 in each step, and qat.freeze_oscillating would hold some of "
            "them; leave one of them out");
  }

  void check_freezing() const {
    const QatRecipe& qat = recipe_.qat;
    const bool freezes = qat.freeze_oscillating > 0;
    require(!freezes || qat.epochs > 0, "qat.freeze_oscillating",
            "weights oscillate in QAT, but qat.epochs is 0; set epochs, or leave it out");
    require(!freezes || qat.ema == 0, "qat.freeze_oscillating",
            fmt::format("freezes the last step's codes, but what is kept is an average (qat.ema {}); leave one of them "
                        "out",
                        qat.ema));
    require(qat.freeze_oscillating_start == 0 || freezes, "qat.freeze_oscillating_start",
            "nothing is frozen; set qat.freeze_oscillating, or leave it out");
    require(qat.freeze_oscillating_start == 0 || qat.freeze_oscillating_start >= qat.freeze_oscillating,
            "qat.freeze_oscillating_start",
            fmt::format("{} is below qat.freeze_oscillating {}: the threshold falls", qat.freeze_oscillating_start,
                        qat.freeze_oscillating));
  }

  /// Masks go through no resize, and one process trains on them.
  void check_labels(bool synthetic) const {
    const DataRecipe& d = recipe_.data;
    if (d.labels == "image") return;
    require(synthetic, "data.labels",
            fmt::format("pixels, but {} has a class for each image; masks come with data.format synthetic", d.format));
    require(d.synthetic_classes == 2 || d.synthetic_classes == 4, "data.synthetic_classes",
            fmt::format("{}; with data.labels: pixels 2 (background, shape) or 4 (background, disc, box, triangle)",
                        d.synthetic_classes));
    const char* cure = "mixes neighbouring pixels, and their classes (data.labels: pixels) have no mean; leave it out";
    require(d.resize == 0, "data.resize", cure);
    require(!d.random_resized_crop, "data.random_resized_crop", cure);
  }

  /// Which images train, which choose and which give the final figures. A folder may be missing, two of the same not.
  void check_splits(bool folder) const {
    const DataRecipe& d = recipe_.data;
    const bool cut = d.validation.empty();
    // An older octet's recipe: to read it as a new one would train and choose on what it kept for validation.
    require(places_.count("data.validation") == 0 || places_.count("data.test") != 0, "data.validation",
            "given without data.test, whose images the final figures are of; in a recipe of an older octet (also in a "
            "run's recipe.yaml) rename validation to test, and a validation_fraction of 0 to 0.02");
    const auto require_split = [&](const char* key, const std::string& split) {
      require(folder || split == "train" || split == "test", key,
              fmt::format("'{}'; allowed for {}: train, test", split, d.format));
    };
    require_split("data.train", d.train);
    require_split("data.test", d.test);
    if (!cut) require_split("data.validation", d.validation);
    require(
        cut || !is_tested(d, d.validation), "data.validation",
        fmt::format("'{}' is data.test too, and nothing may be chosen on test images; leave data.validation out (it "
                    "is cut from the training split then), or name other images",
                    d.validation));
    require(cut || !same_split(d.validation, d.train), "data.validation",
            fmt::format("'{}' is data.train too; leave data.validation out: it is cut from the training split then",
                        d.validation));
    require(cut || d.validation_fraction == 0, "data.validation_fraction",
            fmt::format("{} of the training split, but data.validation names a split; leave one of them out",
                        d.validation_fraction));
    require(!cut || d.validation_fraction > 0, "data.validation_fraction",
            "0 leaves no image to choose on; set a share above 0, or name a split in data.validation");
    const bool trains = recipe_.train.epochs > 0 || recipe_.qat.epochs > 0;
    require(
        !trains || !tests_on_training_images(d), "data.test",
        fmt::format("'{}' is data.train too: figures of images that were trained on say nothing; name other images "
                    "(only post-training quantization, with train.epochs and qat.epochs 0, takes one sample for both)",
                    d.test));
  }

  void require(bool condition, const std::string& key, const std::string& what) const {
    if (condition) return;
    const auto at = places_.find(key);
    throw usage_error((at == places_.end() ? name_ : at->second) + ": " + key + ": " + what);
  }

  const Recipe& recipe_;
  const Places& places_;
  const std::string& name_;
};

}  // namespace

bool tests_on_training_images(const DataRecipe& data) { return is_tested(data, data.train); }

void resolve_defaults(Recipe& recipe, const Places& places) {
  DataRecipe& data = recipe.data;
  if (!data.validation.empty() && places.count("data.validation_fraction") == 0) data.validation_fraction = 0;
  const Format& format = find_format(data.format);
  if (data.path.empty()) data.path = format.path;
  if (data.format == "image_folder" && places.count("data.orientation") == 0) data.orientation = "exif";
  if (data.channels == 0) data.channels = format.channels;
  if (data.image_size == 0) data.image_size = format.image_size;
  const auto take_first = [&](std::vector<double>& values, const std::vector<double>& usual) {
    if (!values.empty()) return;
    values.assign(usual.begin(), usual.begin() + std::min<size_t>(usual.size(), data.channels));
  };
  take_first(data.mean, format.mean);
  take_first(data.std, format.std);
}

void check_consistency(const Recipe& recipe, const Places& places, const std::string& name) {
  const Checker checker(recipe, places, name);
  checker.check_data();
  checker.check_model();
  checker.check_optimizer(recipe.train, "train");
  checker.check_qat();
  checker.check_calibrate();
  checker.check_quant();
  checker.check_parallel();
  checker.check_results();
}

}  // namespace octet
