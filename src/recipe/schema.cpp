// SPDX-License-Identifier: Apache-2.0
#include "src/recipe/schema.h"

#include <fmt/format.h>

#include "src/base/threads.h"
#include "src/net/zoo.h"
#include "src/quant/calibrate.h"
#include "src/quant/plan.h"

namespace octet {
namespace {

std::vector<std::string_view> models() {
  std::vector<std::string_view> names = model_names();
  names.push_back("graph");
  names.push_back("onnx");
  return names;
}

void add_model(std::vector<Field>& fields) {
  using M = ModelRecipe;
  SectionFields<&Recipe::model> s(fields, "model");
  s.add("name", &M::name, one_of(models()),
        "a network of the zoo, graph: the one in model.graph, or onnx: the one in model.onnx")
      .required = true;
  s.add("shortcut", &M::shortcut, one_of({"A", "B"}),
        "resnet8 to resnet56: A subsamples and pads channels, B is a 1x1 convolution");
  s.add("width", &M::width, above_to(0, 8),
        "mobilenet_v2, lraspp_mobilenet_v2, small_cnn, resnet9, unet: factor on the channels");
  s.add("stem", &M::stem, one_of({"auto", "imagenet", "cifar"}),
        "first layers: imagenet 7x7/2 and max-pool, cifar 3x3; auto: cifar below 64 pixels");
  s.add("folded", &M::folded, {}, "convolutions with bias and no BatchNorm, for weights saved that way");
  s.add("dropout", &M::dropout, from_below(0, 1),
        "float phase: probability before the last linear layer, where the network has one; QAT has none");
  s.add("whiten", &M::whiten, {},
        "the first convolution begins with filters that whiten patches of the training images, the others at random");
  s.add("weights", &M::weights, {},
        "float weights to start from: .safetensors, .pth or .th; \"\": those of model.onnx, or random by seed");
  s.add("new_layers", &M::new_layers, {},
        "layers that begin at random whatever model.weights has, names with * and ?: [fc] for other classes than the "
        "file's");
  s.add("onnx", &M::onnx, {}, "name onnx: the file of the network, with its weights");
  s.add("graph", &M::graph, {},
        "name graph: list of nodes {name, op, inputs, attributes...}; no inputs: the node before");
  s.add("outputs", &M::outputs, {},
        "name graph: names of the nodes that the network gives; []: the last. Name onnx: values of the file that the "
        "network gives, what is behind them is left out; []: the file's own. Training wants one, or a head of YOLOX");
}

template <auto Section>
void add_optimizer(SectionFields<Section>& s, const char* epochs_meaning, const Rule& rates, const char* rate_meaning) {
  using O = OptimizerRecipe;
  s.add("epochs", &O::epochs, range(0, 100000), epochs_meaning);
  s.add("val_interval", &O::val_interval, range(1, 100000),
        "every so many epochs, and after the last, the network is validated");
  s.add("batch_size", &O::batch_size, range(1, 65536), "images a step");
  s.add("optimizer", &O::optimizer, kOptimizers, "SGD with momentum, or AdamW");
  s.add("learning_rate", &O::learning_rate, rates, rate_meaning);
  s.add("momentum", &O::momentum, from_below(0, 1), "sgd");
  s.add("nesterov", &O::nesterov, {}, "sgd: Nesterov's momentum");
  s.add("beta1", &O::beta1, from_below(0, 1), "adamw: decay of the mean");
  s.add("beta2", &O::beta2, from_below(0, 1), "adamw: decay of the square");
  s.add("weight_decay", &O::weight_decay, range(0, 10), "on weights, not on BatchNorm, biases and quantizers");
  s.add("schedule", &O::schedule, kSchedules, "course of the learning rate");
  s.add("milestones", &O::milestones, range(1, 100000), "step: epochs after which the rate is multiplied by gamma");
  s.add("gamma", &O::gamma, above_to(0, 1), "step: the factor");
  s.add("warmup_epochs", &O::warmup_epochs, range(0, 100000),
        "rise of the rate from 0 at the start: linear, yolox: squared");
  s.add("label_smoothing", &O::label_smoothing, from_below(0, 1), "share of the target spread over all classes");
  s.add("ema", &O::ema, from_below(0, 1), "decay of the moving average of the weights that is kept; 0: off");
  s.add("ema_ramp", &O::ema_ramp, range(0, 1e9),
        "steps over which that decay rises, ema (1 - exp(-step / ema_ramp)), as YOLOX has it with 2000; 0: at most "
        "(1 + step) / (10 + step)");
  s.add("clip_gradient", &O::clip_gradient, at_least(0), "largest global norm of the gradient; 0: off");
  s.add("precision", &O::precision, kPrecisions, "autocast type of convolutions and linears");
  s.add("channels_last", &O::channels_last, {}, "memory layout NHWC");
  s.add("sync_batch_norm", &O::sync_batch_norm, {},
        "several processes: BatchNorm sees the whole batch, not each its share");
  s.add("box_l1", &O::box_l1, {}, "labels boxes: the last data.mosaic_off epochs have YOLOX's L1 loss, too");
}

void add_training(std::vector<Field>& fields) {
  SectionFields<&Recipe::train> train(fields, "train");
  add_optimizer(train, "of float training; 0: none, start from model.weights", range(0, 1000),
                "peak of the schedule; 0: octet's own, see above");

  using C = CalibrateRecipe;
  SectionFields<&Recipe::calibrate> s(fields, "calibrate");
  s.add("images", &C::images, range(1, 10000000), "taken from the training set, by seed");
  s.add("batch_size", &C::batch_size, range(1, 65536), "images a step");
  s.add("method", &C::method, kCalibrationMethods,
        "how a range follows from a histogram; auto: several of them are tried, for all activations and for single "
        "ones, and those stay that change the outputs for validation images least");
  s.add("percentile", &C::percentile, above_to(50, 100),
        "method percentile: share of the values whose magnitude is within the range, in %");
  s.add("equalize", &C::equalize, {},
        "weights of neighbouring layers get one range in each channel (relu6 between them becomes relu), before ranges "
        "are read; qat.epochs 0");
  s.add("channel_scales", &C::channel_scales, kScaleChannels,
        "functions such as SiLU get a scale for each channel, in a table of 256 bytes each, where less is lost at the "
        "outputs for validation images; auto: where much is lost, and much less with them");
  s.add("bias_correction", &C::bias_correction, {},
        "biases take back by how much quantization shifted each channel, as a trimmed mean; QAT begins with them");
  s.add("rounding", &C::rounding, kWeightRoundings,
        "of weights: each to the nearest code, or up or down as the output of its layer (adaround) or block comes "
        "nearest; adaround, block: qat.epochs 0");
  s.add("rounding_steps", &C::rounding_steps, range(1, 10000000),
        "adaround, block: steps of Adam for each layer or block");
  s.add("rounding_learning_rate", &C::rounding_learning_rate, above_to(0, 1),
        "adaround, block: of Adam; ten times as much takes a few hundred steps about as far as thousands");
  s.add("rounding_drop", &C::rounding_drop, range(0, 1),
        "block: probability with which a step leaves an activation, each by itself, as it was before quantization "
        "(QDrop; its paper: 0.5); 0: all are quantized");
  s.add("repair_images", &C::repair_images, range(1, 100000),
        "bias_correction, adaround, block: look at so many of the images at most, whose values are held in memory "
        "together");
  s.add("distill_steps", &C::distill_steps, range(0, 10000000),
        "last repair: steps of Adam in which the float network teaches the quantized one the calibration images, "
        "without labels; 0: none; qat.epochs 0");
  s.add("distill_learning_rate", &C::distill_learning_rate, above_to(0, 1),
        "distill_steps: of codes, in steps of the grid, and of biases; scales take a tenth of it as a share");
  s.add("distill_temperature", &C::distill_temperature, above_to(0, 1000),
        "distill_steps: logits of both networks are divided by it");

  using Q = QuantRecipe;
  SectionFields<&Recipe::quant> quant(fields, "quant");
  quant.add("activation", &Q::activation, kActivationSchemes,
            "codes of activations: signed about 0, unsigned from 0, unsigned with a zero point");
  quant.add("activation_bits", &Q::activation_bits, range(2, 8),
            "of activations; below 8: fewer codes in the same byte");
  quant.add("weight_bits", &Q::weight_bits, range(2, 8), "of weights; below 8: fewer codes, packed in the file");
  quant.add("input_bits", &Q::input_bits, range(2, 8), "of the image as the network reads it");
  quant.add("first_layer_bits", &Q::first_layer_bits, range(2, 8), "of the weights of the layers that read the image");
  quant.add("last_layer_bits", &Q::last_layer_bits, range(2, 8),
            "of the weights of the layer that gives the logits, and of the activations it reads");
  quant.add("residual_bits", &Q::residual_bits, range(0, 8),
            "of activations that adds, functions, products, concats and average pools read; 0: activation_bits; "
            "convolutions that read a wider edge read codes of their own");
  quant.add(
      "layers", &Q::layers, range(2, 8),
      "bits of single layers: list of {match, weight_bits, activation_bits}; match: names with * and ?; later win");
  quant.add("weight_codes", &Q::weight_codes, kWeightRanges,
            "b bits, h = 2^(b-1) - 1: symmetric [-h, h], full [-h-1, h]; 8 bits: always [-127, 127]");
  quant.add("weight_granularity", &Q::weight_granularity, kGranularities,
            "one scale an output channel, or one a tensor");
  quant.add("weight_calibrator", &Q::weight_calibrator, kWeightCalibrators,
            "how a weight's range is chosen; lsq: as mse, then QAT learns the scale of each channel");
  quant.add("sparsity", &Q::sparsity, kSparsities,
            "of weights: 2:4: of each four input channels at one place only the two largest are not 0");
  quant.add(
      "scales", &Q::scales, kEdgeScales,
      "ranges of activations during QAT: fixed: as calibrated; observed: they follow the data; lsq: scales learn; "
      "lsq_plus: scales and zero points learn; auto: lsq with activations of fewer than eight bits, else fixed, or "
      "observed where the calibrated ones lose much and a batch loses less so");
  quant.add("observer", &Q::observer, kObserverKinds, "scales observed: how ranges of activations follow the data");
  quant.add("averaging", &Q::averaging, above_to(0, 1), "observer moving_average: weight of the new batch");

  using A = QatRecipe;
  SectionFields<&Recipe::qat> qat(fields, "qat");
  add_optimizer(qat, "of quantization-aware training; 0: post-training quantization only", range(0, 1000),
                "peak of the schedule; 0: as suits the float network, see above");
  qat.add("freeze_batch_norm", &A::freeze_batch_norm, range(0, 1),
          "after this share of the steps statistics stay; auto: 0.5, and 0 where the calibrated ranges fit the running "
          "statistics alone");
  qat.add("forward", &A::forward, kQatForwards, "once statistics stay: simulated in floats, or on codes by a GPU");
  qat.add("recompute", &A::recompute, {},
          "until then, on a GPU: what one pass makes again is not kept for the backward pass: less memory, slower");
  qat.add("freeze_observers", &A::freeze_observers, range(0, 1),
          "scales observed: after this share of the steps ranges stay");
  qat.add(
      "scale_learning_rate", &A::scale_learning_rate, range(0, 1000),
      "scales and offsets that learn: peak of the schedule for them; 0: qat.learning_rate, with scales auto a tenth "
      "of it");
  qat.add("distill_weight", &A::distill_weight, range(0, 1),
          "share of the float network's probabilities in the loss, beside the labels; 0: labels alone");
  qat.add("distill_temperature", &A::distill_temperature, above_to(0, 1000),
          "distillation: logits of both networks are divided by it");
  qat.add("float_control", &A::float_control, {},
          "after QAT: train the float network for the same epochs, to compare int8 with what float gains by them");
}

void add_cuda(std::vector<Field>& fields) {
  using C = CudaRecipe;
  SectionFields<&Recipe::cuda> s(fields, "cuda");
  s.add("benchmark", &C::benchmark, {}, "cuDNN tries its convolutions once and keeps the fastest");
  s.add("deterministic", &C::deterministic, {}, "the same bits in every run, slower; benchmark is then off");
  s.add("tf32", &C::tf32, {},
        "precision fp32, steps of adaround, block, distill_steps: convolutions and linears with 10 bits of mantissa "
        "on tensor cores");
  s.add("graph", &C::graph, {}, "training steps are captured once and replayed");
  s.add("resident_images", &C::resident_images, kResidentImages,
        "training images stay on the GPU and are augmented there; auto: where they fit and the transform allows");
}

void add_parallel(std::vector<Field>& fields) {
  using P = ParallelRecipe;
  SectionFields<&Recipe::parallel> s(fields, "parallel");
  s.add("exchange", &P::exchange, kExchangeTypes,
        "type in which processes sum their gradients; fp16: with precision fp16, whose loss scale keeps them in range");
  s.add("stages", &P::stages, {},
        "layers after which the network is cut, one process a part; []: it is not, each process takes a share of the "
        "batch. octet inspect RECIPE --stages 2 proposes them");
  s.add("micro_batches", &P::micro_batches, range(1, 1024),
        "stages: parts of a batch that follow each other through them; each has its own BatchNorm statistics");
}

void add_results(std::vector<Field>& fields) {
  using E = EvaluateRecipe;
  SectionFields<&Recipe::evaluate> s(fields, "evaluate");
  s.add("batch_size", &E::batch_size, range(1, 65536), "images a step");
  s.add("engines", &E::engines, one_of({"auto", "cuda", "cudnn", "cutlass", "cpu", "reference"}),
        "int8 engines to run, in this order; auto: cuda where there is a GPU, then cpu and reference; cudnn and "
        "cutlass need a fallback and quant.activation symmetric_s8");
  s.add("fallback", &E::fallback, one_of({"none", "cuda"}),
        "with cudnn or cutlass: the engine that runs the layers they cannot");
  s.add("reference_images", &E::reference_images, at_least(0),
        "the slow reference runs and is compared over the first so many test images, the others over all; 0: all");
  s.add("latency_images", &E::latency_images, range(0, 10000),
        "test images that are timed one by one, for ten seconds at most; 0: none, and no latency is told");

  SectionFields<&Recipe::export_> e(fields, "export");
  e.add("file", &ExportRecipe::file, {}, "name of the int8 checkpoint in the run directory, .safetensors");
}

std::vector<Field> make_schema() {
  std::vector<Field> fields;
  fields.push_back({"seed", Reference<uint64_t>([](Recipe& r) -> uint64_t& { return r.seed; }), at_least(0),
                    "of weights, order, augmentation and splits"});
  fields.push_back({"threads", Reference<int>([](Recipe& r) -> int& { return r.threads; }), range(0, kMostThreads),
                    "of training and engines; 0: all usable cores"});
  add_data(fields);
  add_model(fields);
  add_training(fields);
  add_cuda(fields);
  add_parallel(fields);
  add_results(fields);
  return fields;
}

struct TypeName {
  std::string operator()(const Reference<bool>&) const { return "true or false"; }
  std::string operator()(const Reference<int>&) const { return "integer"; }
  std::string operator()(const Reference<uint64_t>&) const { return "integer"; }
  std::string operator()(const Reference<double>&) const { return "number"; }
  std::string operator()(const Reference<std::optional<double>>&) const { return "number"; }
  std::string operator()(const Reference<std::string>&) const { return "text"; }
  std::string operator()(const Choice&) const { return "text"; }
  std::string operator()(const Reference<std::vector<int>>&) const { return "list of integers"; }
  std::string operator()(const Reference<std::vector<double>>&) const { return "list of numbers"; }
  std::string operator()(const Reference<std::vector<std::string>>&) const { return "list of texts"; }
  std::string operator()(const Reference<std::vector<NodeSpec>>&) const { return "list of nodes"; }
  std::string operator()(const Reference<std::vector<LayerBits>>&) const { return "list of layers"; }
};

}  // namespace

const std::vector<Field>& schema() {
  static const std::vector<Field> kFields = make_schema();
  return kFields;
}

bool is_text(const Field& field) {
  return std::holds_alternative<Choice>(field.slot) || std::holds_alternative<Reference<std::string>>(field.slot);
}

std::string type_name(const Field& field) { return std::visit(TypeName(), field.slot); }

std::string allowed(const Field& field) {
  const Rule& rule = field.rule;
  if (!rule.choices.empty()) return fmt::format("{}", fmt::join(rule.choices, ", "));
  const bool low = std::isfinite(rule.minimum), high = std::isfinite(rule.maximum);
  const std::string or_auto = std::holds_alternative<Reference<std::optional<double>>>(field.slot) ? "auto, " : "";
  if (low && high && !rule.above_minimum && !rule.below_maximum) {
    return fmt::format("{}{} .. {}", or_auto, rule.minimum, rule.maximum);
  }
  std::string text;
  if (low) text = fmt::format("{} {}", rule.above_minimum ? ">" : ">=", rule.minimum);
  if (high) text += fmt::format("{}{} {}", low ? ", " : "", rule.below_maximum ? "<" : "<=", rule.maximum);
  if (std::holds_alternative<Reference<bool>>(field.slot)) return "true, false";
  return text.empty() ? or_auto + "any" : or_auto + text;
}

const std::vector<std::string_view>& graph_attributes() {
  static const std::vector<std::string_view> kNames = {
      "out_channels", "kernel", "stride",  "pad",   "pad_top", "pad_left",      "pad_bottom", "pad_right",  "dilation",
      "groups",       "bias",   "dropout", "slope", "epsilon", "first_channel", "factor",     "transposed", "scale"};
  return kNames;
}

}  // namespace octet
