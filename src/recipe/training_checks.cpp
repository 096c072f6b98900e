// SPDX-License-Identifier: Apache-2.0
// The checks of what is trained and what becomes of it: values of model, train, qat, calibrate, quant, parallel,
// evaluate and export that must fit each other.
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "src/base/names.h"
#include "src/quant/calibrate.h"
#include "src/quant/plan.h"
#include "src/recipe/schema.h"

namespace octet {
namespace {

struct TrainingChecks : Checks {
  void check_model() const {
    const bool graph = recipe.model.name == "graph";
    require(graph != recipe.model.graph.empty(), graph ? "model.name" : "model.graph",
            graph ? "graph needs the nodes in model.graph" : "only for model.name graph");
    const bool onnx = recipe.model.name == "onnx";
    require(onnx != recipe.model.onnx.empty(), onnx ? "model.name" : "model.onnx",
            onnx ? "onnx needs the network's file in model.onnx" : "only for model.name onnx");
    require(graph || onnx || recipe.model.outputs.empty(), "model.outputs", "only for model.name graph or onnx");
  }

  void check_optimizer(const OptimizerRecipe& o, const std::string& section) const {
    require(o.schedule != ScheduleKind::step || !o.milestones.empty(), section + ".schedule",
            "step needs " + section + ".milestones");
    for (size_t i = 1; i < o.milestones.size(); ++i) {
      require(o.milestones[i - 1] < o.milestones[i], section + ".milestones", "must increase");
    }
    require(o.epochs == 0 || o.warmup_epochs < o.epochs, section + ".warmup_epochs",
            fmt::format("{0} leaves nothing of {1}.epochs {2}; set {1}.warmup_epochs below it, 0 for none",
                        o.warmup_epochs, section, o.epochs));
    require(!o.nesterov || o.optimizer != OptimizerKind::sgd || o.momentum > 0, section + ".nesterov",
            "needs " + section + ".momentum above 0");
    const int limit = recipe.data.limit_train;
    require(o.epochs == 0 || limit == 0 || limit >= o.batch_size, "data.limit_train",
            fmt::format("{} is below {}.batch_size {}: no step", limit, section, o.batch_size));
  }

  /// Checks what a forward pass on codes cannot train, as far as the recipe tells; require_int8_forward() checks the
  /// network.
  void check_forward() const {
    const QuantRecipe& quant = recipe.quant;
    if (recipe.qat.forward == QatForward::simulation) return;
    const auto require_it = [&](bool fits, const std::string& why, const std::string& cure) {
      require(fits, "qat.forward", fmt::format("int8 {}; set {}, or qat.forward: simulation", why, cure));
    };
    require(recipe.qat.epochs > 0, "qat.forward",
            "int8 is a forward pass of QAT, but qat.epochs is 0; set epochs, or leave it out");
    require_it(!quant.scales || !learn(*quant.scales),
               fmt::format("keeps codes, from which ranges cannot learn, but quant.scales is {}",
                           name_or_auto(kEdgeScales, quant.scales)),
               "quant.scales: fixed or observed");
    require_it(quant.scales != EdgeScales::observed || recipe.qat.freeze_observers < 1,
               "begins once ranges stay, but qat.freeze_observers is 1", "less than 1");
    require_it(quant.activation_bits >= kFewestBitsOnCodes,
               fmt::format("needs activations of at least {} bits, but quant.activation_bits is {}", kFewestBitsOnCodes,
                           quant.activation_bits),
               fmt::format("quant.activation_bits: {}", kFewestBitsOnCodes));
    require_it(quant.sparsity == Sparsity::none, "cannot train 2:4 sparse weights, which are chosen anew in each step",
               "quant.sparsity: none");
    require_it(recipe.parallel.stages.empty(), "runs whole networks, but parallel.stages cuts this one",
               "no parallel.stages");
  }

  /// Checks what nothing is made again for, as far as the recipe tells; trainers/run/start.cpp checks the device.
  void check_recompute() const {
    if (!recipe.qat.recompute) return;
    const auto require_it = [&](bool fits, const std::string& why, const char* cure) {
      require(fits, "qat.recompute", fmt::format("{}; set {}, or leave it out", why, cure));
    };
    const QatRecipe& qat = recipe.qat;
    const std::optional<EdgeScales>& scales = recipe.quant.scales;
    require_it(qat.epochs > 0, "spares memory in QAT, but qat.epochs is 0", "epochs");
    require_it(qat.precision != Precision::fp32, "makes values of 16 bits again, but qat.precision is fp32",
               "qat.precision: fp16 or bf16");
    require_it(qat.freeze_batch_norm != 0, "works while statistics follow the batches, but qat.freeze_batch_norm is 0",
               "more than 0");
    require_it(!qat.sync_batch_norm, "makes again what one process has, but qat.sync_batch_norm is true",
               "qat.sync_batch_norm: false");
    require_it(!scales || !learn(*scales),
               fmt::format("makes nothing again whose range learns, but quant.scales is {}",
                           name_or_auto(kEdgeScales, scales)),
               "quant.scales: fixed or observed");
  }

  void check_qat() const {
    check_optimizer(recipe.qat, "qat");
    require(recipe.qat.distill_weight == 0 || recipe.qat.epochs > 0, "qat.distill_weight",
            "the float network teaches in QAT, but qat.epochs is 0; set epochs, or leave it out");
    check_forward();
    check_recompute();
    require(!recipe.qat.float_control || recipe.qat.epochs > 0, "qat.float_control",
            "trains as long as QAT, but qat.epochs is 0; set epochs, or leave it out");
  }

  /// Checks the repairs after training, which but for bias correction exclude QAT.
  void check_calibrate() const {
    const CalibrateRecipe& calibrate = recipe.calibrate;
    const bool trains = recipe.qat.epochs > 0;
    const auto require_untrained = [&](bool asked, const char* key, const char* why) {
      require(!asked || !trains, key, fmt::format("{}; set qat.epochs: 0, or leave it out", why));
    };
    require_untrained(calibrate.equalize, "calibrate.equalize",
                      "repairs a network after training, and QAT would train another network than train did");
    const WeightRounding rounding = calibrate.rounding;
    const std::string_view word = name_in(kWeightRoundings, rounding);
    const std::string learned =
        std::string(word) + " puts weights on their codes after training, and QAT would move them off again";
    require_untrained(rounding != WeightRounding::nearest, "calibrate.rounding", learned.c_str());
    require(
        calibrate.rounding_drop == 0 || rounding == WeightRounding::block, "calibrate.rounding_drop",
        fmt::format("drops quantization where blocks are rounded together, but calibrate.rounding is {}; set block, "
                    "or 0",
                    word));
    const bool distills = calibrate.distill_steps > 0;
    require_untrained(distills, "calibrate.distill_steps",
                      "teaches a network after training; in QAT qat.distill_weight does");
    require(!distills || recipe.data.labels == Labels::image, "calibrate.distill_steps",
            fmt::format("the float network teaches the class of each image, but data.labels is {}; leave it out",
                        name_in(kLabels, recipe.data.labels)));
  }

  void check_quant() const {
    const QuantRecipe& quant = recipe.quant;
    require(quant.residual_bits != 1, "quant.residual_bits", "1; allowed: 0, 2 .. 8");
    const bool trains = recipe.qat.epochs > 0, weights = quant.weight_calibrator == WeightCalibrator::lsq;
    const std::optional<EdgeScales> scales = quant.scales;
    const bool edges = scales && learn(*scales);
    require(!scales || scales == EdgeScales::fixed || trains, "quant.scales",
            fmt::format("{} {} in QAT, but qat.epochs is 0; set epochs, or auto", name_or_auto(kEdgeScales, scales),
                        edges ? "learns scales" : "follows ranges"));
    const ActivationScheme activation = quant.activation;
    require(scales != EdgeScales::lsq_plus || activation == ActivationScheme::affine_u8, "quant.scales",
            fmt::format("lsq_plus learns zero points, and quant.activation {} has none; set affine_u8, or lsq",
                        name_in(kActivationSchemes, activation)));
    check_sparsity();
    require(!weights || trains, "quant.weight_calibrator",
            "lsq learns scales in QAT, but qat.epochs is 0; set epochs, or mse, which lsq begins with");
    require(!weights || quant.weight_granularity == Granularity::per_channel, "quant.weight_calibrator",
            "lsq learns a scale for each channel, but quant.weight_granularity is per_tensor; set per_channel, or mse");
    const bool chosen = trains && !scales && quant.least_activation_bits() < 8;  // auto takes lsq
    require(recipe.qat.scale_learning_rate == 0 || edges || chosen || weights, "qat.scale_learning_rate",
            "no scale learns; set quant.scales: lsq or lsq_plus, or quant.weight_calibrator: lsq, or leave it out");
  }

  void check_parallel() const {
    check_phase(recipe.train, "train");
    check_phase(recipe.qat, "qat");
    const bool cut = !recipe.parallel.stages.empty(), qat = recipe.qat.epochs > 0;
    require(!cut || !qat || recipe.quant.scales != EdgeScales::observed, "quant.scales",
            "observed follows whole batches, but parallel.stages sees each micro-batch by itself; set fixed, lsq or "
            "lsq_plus");
    require(!cut || recipe.qat.distill_weight == 0, "qat.distill_weight",
            "the float network that teaches is not cut by parallel.stages; leave one of them out");
    require(!cut || recipe.model.dropout == 0 || recipe.train.epochs == 0, "model.dropout",
            "parallel.stages trains the fused network, which has no dropout; set 0, or leave the stages out");
    require(!cut || !qat || recipe.quant.sparsity == Sparsity::none, "quant.sparsity",
            "2:4 is chosen from all weights in each step, of which parallel.stages has a part; leave one of them out");
  }

  void check_results() const {
    const auto& engines = recipe.evaluate.engines;
    require(!engines.empty(), "evaluate.engines", "names no engine; [auto] takes those of the machine");
    require(std::set<std::string>(engines.begin(), engines.end()).size() == engines.size(), "evaluate.engines",
            "an engine is given twice");
    const std::string& fallback = recipe.evaluate.fallback;
    const std::string partial = partial_engine(engines);
    const FallbackFault fault = fallback_fault(engines, fallback);
    require(fault != FallbackFault::missing, "evaluate.engines",
            fmt::format("{0} cannot run every layer (the input, for one); add evaluate.fallback: cuda, or leave {0} "
                        "out",
                        partial));
    require(fault != FallbackFault::useless, "evaluate.fallback",
            fmt::format("{} is for engines cudnn and cutlass; add one to evaluate.engines, or leave the fallback out",
                        fallback));
    require(partial.empty() || recipe.quant.activation == ActivationScheme::symmetric_s8, "evaluate.engines",
            fmt::format("{0} convolves int8 codes and would run no layer of quant.activation {1}; set symmetric_s8, or "
                        "leave {0} out",
                        partial, name_in(kActivationSchemes, recipe.quant.activation)));
    const std::filesystem::path file = recipe.export_.file;
    require(file.extension() == ".safetensors" && !file.has_parent_path() && !file.stem().empty(), "export.file",
            fmt::format("'{}' is not a plain file name that ends in .safetensors", file.string()));
  }

  void check_phase(const OptimizerRecipe& o, const std::string& section) const {
    const ParallelRecipe& parallel = recipe.parallel;
    if (o.epochs == 0) return;
    require(parallel.exchange != ExchangeType::fp16 || o.precision == Precision::fp16, "parallel.exchange",
            fmt::format("fp16 loses gradients below 6e-8, and {}.precision {} has no loss scale that keeps them above; "
                        "set fp32, or precision fp16",
                        section, name_in(kPrecisions, o.precision)));
    if (parallel.stages.empty()) return;
    require(o.batch_size % parallel.micro_batches == 0, section + ".batch_size",
            fmt::format("{} is no multiple of parallel.micro_batches {}", o.batch_size, parallel.micro_batches));
    require(!o.sync_batch_norm, section + ".sync_batch_norm",
            "each micro-batch of parallel.stages has its own statistics: there is no whole batch on a GPU at a time; "
            "leave one of them out");
  }

  void check_sparsity() const {
    if (recipe.quant.sparsity == Sparsity::none) return;
    require(recipe.calibrate.rounding == WeightRounding::nearest, "quant.sparsity",
            fmt::format("2:4 needs its zeros, which calibrate.rounding {} may round up; set nearest, or none",
                        name_in(kWeightRoundings, recipe.calibrate.rounding)));
    require(recipe.calibrate.distill_steps == 0, "quant.sparsity",
            "2:4 needs its zeros, which calibrate.distill_steps would move; leave one of them out");
  }
};

}  // namespace

void check_training(const Checks& checks) {
  const TrainingChecks training{checks};
  training.check_model();
  training.check_optimizer(checks.recipe.train, "train");
  training.check_qat();
  training.check_calibrate();
  training.check_quant();
  training.check_parallel();
  training.check_results();
}

}  // namespace octet
