// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/safetensors.h"
#include "src/base/text.h"
#include "src/base/threads.h"
#include "src/detect/decode.h"
#include "src/net/int8_graph.h"
#include "src/net/shapes.h"
#include "src/net/zoo.h"
#include "src/quant/equalize.h"
#include "src/quant/plan.h"
#include "src/report/report.h"
#include "src/train/model/device.h"
#include "src/train/model/threads.h"
#include "src/train/repair/channel_scales.h"
#include "src/train/repair/learned_codes.h"
#include "trainers/gpu.h"
#include "trainers/loop/batches.h"
#include "trainers/loop/training_state.h"
#include "trainers/run/advice.h"

namespace octet {
namespace {

constexpr const char* kQuantizedKey = "octet_quantized";  // metadata of qat.safetensors: its format version
constexpr const char* kQuantizedVersion = "1";

Shape input_shape(const DataRecipe& data) { return {data.channels, data.image_size, data.width()}; }

/// Returns the height and width of square images, for files that leave them open or take others; 0 of other images.
int open_size(const DataRecipe& data) { return data.width() == data.image_size ? data.image_size : 0; }

ModelSpec model_spec(const Recipe& recipe, int classes) {
  const ModelRecipe& from = recipe.model;
  ModelSpec spec;
  spec.name = from.name;
  spec.input = input_shape(recipe.data);
  spec.classes = classes;
  spec.shortcut = from.shortcut.at(0);
  spec.width = from.width;
  spec.stem = from.stem;
  spec.folded = from.folded;
  spec.dropout = from.dropout;
  spec.graph = from.graph;
  spec.outputs = from.outputs;
  return spec;
}

/// Gives the head's layers of classes as many as the data set has; the file's number may be another.
void change_classes(Run& run, int classes) {
  const BoxHead head = find_box_head(run.graph, BoxHeadKind::yolox);
  const int before = box_decoder(run.graph, head, {}).classes();
  if (before == classes) return;
  for (const BoxHead::Level& level : head.levels) {
    Node& layer = run.graph.nodes[run.graph.outputs[level.classes]];
    layer.out_channels = classes;
    run.new_layers.push_back(layer.name);
  }
  infer_shapes(run.graph);
  say(fmt::format("note: {}: {} classes, the data set has {}: {} begin anew", run.recipe.model.onnx, before, classes,
                  fmt::join(run.new_layers, ", ")));
}

/// Builds or imports the network of the recipe, for the images and classes of the data.
void open_graph(Run& run) {
  const Recipe& recipe = run.recipe;
  if (recipe.model.onnx.empty()) {
    run.graph = build_model(model_spec(recipe, run.data.classes()));
    return;
  }
  run.onnx_outputs = recipe.model.outputs;
  ImportedNetwork imported =
      import_network(recipe.model.onnx, open_size(recipe.data), recipe.data.labels == Labels::boxes, run.onnx_outputs);
  if (imported.own_image_size != 0 && recipe.data.usual_image_size.yes)
    throw usage_error(
        fmt::format("{}: is for images of {}x{}, and data.image_size, which is not set, is {} with data.format {}: set "
                    "it to {}, or "
                    "to another size to train with",
                    recipe.model.onnx, imported.own_image_size, imported.own_image_size, recipe.data.image_size,
                    recipe.data.format, imported.own_image_size));
  run.graph = std::move(imported.graph);
  run.onnx_weights = std::make_shared<const TensorFile>(std::move(imported.weights));
  const Shape& wanted = run.graph.nodes.front().shape;
  if (const Shape given = input_shape(recipe.data); given != wanted) {
    throw usage_error(
        fmt::format("{}: takes images {}, the recipe gives {}; set data.image_size, data.image_width and data.channels",
                    recipe.model.onnx, to_string(wanted), to_string(given)));
  }
  if (recipe.data.labels == Labels::boxes) change_classes(run, run.data.classes());
}

void require_written(const std::string& file, const char* what, const Run& run) {
  if (std::filesystem::exists(file)) return;
  throw data_error(fmt::format("{}: this run has no {} yet{}", file, what,
                               why_unfinished(run.directory.report_html(), run.directory.root)));
}

Weights load_written(const Run& run, const std::string& file, const char* what) {
  require_written(file, what, run);
  Weights weights = initial_weights(run.graph, run.recipe.seed);
  load_weights(weights, run.graph, file);
  return to_device(weights, run.device);
}

/// Refuses a network whose output training cannot learn: it must be logits for the labels of the data set.
void require_trained_answers(const Graph& graph, const Task& task) {
  require_answers(task, graph);
  const Graph fused = fuse(graph);
  for (const int output : fused.outputs) {
    if (float_outputs(fused)[output]) continue;
    const Node& node = fused.nodes[output];
    throw usage_error(fmt::format(
        "model: the output '{}' ({}) would be codes, no logits: it must compute them, without an activation behind",
        node.name, op_name(node.op)));
  }
}

}  // namespace

Run open_run(const Recipe& recipe, const RunDirectory& directory, at::Device device, std::shared_ptr<Ranks> ranks) {
  set_switches(device, recipe.cuda);
  const int cores = usable_cores() / (ranks ? ranks->local_size() : 1);
  set_threads(recipe.threads > 0 ? recipe.threads : std::max(1, cores));
  Run run{};
  run.recipe = recipe;
  run.directory = directory;
  run.float_rate = float_rate(recipe, directory);
  run.qat_share = qat_share(recipe, directory);
  run.data = open_run_data(recipe);
  run.device = device;
  run.ranks = std::move(ranks);
  if (run.ranks) {
    run.data.sharing = std::make_shared<Sharing>(
        Sharing{run.ranks->rank(), run.ranks->size(),
                [ranks = run.ranks](const Sharing::Bytes& mine) { return ranks->gather(mine); }});
  }
  open_graph(run);
  if (recipe.data.labels == Labels::boxes)
    run.data.detector = std::make_shared<BoxDecoder>(
        box_decoder(run.graph, find_box_head(run.graph, BoxHeadKind::yolox), run.data.evaluation_transform));
  require_trained_answers(run.graph, run.data.task());
  run.preprocessing = {.resize = recipe.data.resize,
                       .crop = recipe.data.fit == Fit::crop ? open_size(recipe.data) : 0,
                       .exif_orientation = recipe.data.orientation == Orientation::exif,
                       .even_margin = recipe.data.fit == Fit::crop && run.data.evaluation_transform.even_margin,
                       .fit = recipe.data.fit,
                       .order = recipe.data.channel_order,
                       .mean = run.data.mean,
                       .std = run.data.std};
  return run;
}

ImportedNetwork import_network(const std::string& file, int image_size, bool may_end_sooner,
                               std::vector<std::string>& outputs) {
  const auto import = [&] { return import_onnx(file, outputs, image_size); };
  ImportedNetwork imported;
  try {
    imported = import();
  } catch (const OnnxEndsTooLate& late) {
    if (!may_end_sooner) throw;
    outputs = late.end_at;
    imported = import();
    say(fmt::format("note: {}: ends at {}; what stands behind ({}) stays with your program", file,
                    printable(fmt::format("{}", fmt::join(outputs, ", "))), fmt::join(late.left_out, ", ")));
  }
  for (const std::string& note : imported.notes) say(fmt::format("{}: {}", file, printable(note)));
  return imported;
}

QuantSpec quant_spec(const QuantRecipe& quant) {
  return {.activation = quant.activation,
          .activation_bits = quant.activation_bits,
          .weight_bits = quant.weight_bits,
          .weight_granularity = quant.weight_granularity,
          .weight_range = quant.weight_codes,
          .sparsity = quant.sparsity,
          .input_bits = quant.input_bits,
          .first_layer_bits = quant.first_layer_bits,
          .last_layer_bits = quant.last_layer_bits,
          .residual_bits = quant.residual_bits,
          .layers = quant.layers};
}

QatRate qat_rate(const Run& run) {
  QatRate rate = qat_rate(run.recipe, run.graph, run.float_rate);
  rate.rate *= run.qat_share;
  return rate;
}

bool may_observe(const Run& run) {
  return (run.ranks == nullptr || run.device.is_cpu()) && run.recipe.parallel.stages.empty();
}

EdgeScales edge_scales(const Run& run) {
  const Recipe& recipe = run.recipe;
  if (recipe.quant.scales) return *recipe.quant.scales;
  if (recipe.qat.epochs == 0) return EdgeScales::fixed;
  if (recipe.quant.least_activation_bits() < 8) return EdgeScales::lsq;
  return may_observe(run) ? EdgeScales::observed : EdgeScales::fixed;
}

Graph quantized_graph(const Run& run, const Weights& weights) {
  return with_channel_scales(run.graph, [&](const std::string& parameter) { return weights.contains(parameter); });
}

QuantizedModel make_quantized(const Run& run, const Weights& weights) {
  const QuantRecipe& quant = run.recipe.quant;
  Graph fused = fuse(quantized_graph(run, weights));
  if (run.recipe.calibrate.equalize) fused = equalizable(std::move(fused));
  if (run.recipe.calibrate.bias_correction) require_biases(fused);
  if (run.recipe.calibrate.distill_steps > 0) require_teachable(fused);
  const QuantizerOptions options = {
      .observer = quant.observer,
      .averaging = quant.averaging,
      .weights = quant.weight_calibrator,
      .edges = edge_scales(run),
      .forward = run.recipe.qat.forward,
      .by_layer_groups = run.ranks != nullptr,  // so that their exchange overlaps with the backward pass
      .recompute = run.recipe.qat.recompute};
  return {prepare(fused, quant_spec(quant)), weights, options};
}

void save_quantized(const QuantizedModel& model, const std::string& path) {
  TensorFile file;
  put_tensors(file, "weights", model.weights());
  put_tensors(file, "quantizer", model.state());
  file.metadata.emplace(kQuantizedKey, kQuantizedVersion);
  write_safetensors(path, file);
}

Weights load_float(const Run& run) { return load_written(run, run.directory.float_weights(), "float weights"); }

Weights load_float_control(const Run& run) {
  return load_written(run, run.directory.float_control(), "weights of qat.float_control");
}

QuantizedModel load_quantized(const Run& run) {
  const std::string path = run.directory.quantized();
  require_written(path, "quantized network", run);
  const TensorFile file = read_safetensors(path);
  const auto version = file.metadata.find(kQuantizedKey);
  if (version == file.metadata.end()) throw data_error(fmt::format("{}: not a quantized model of octet", path));
  if (version->second != kQuantizedVersion) {
    throw data_error(fmt::format("{}: version {}, this octet reads {}; train again with this octet", path,
                                 version->second, kQuantizedVersion));
  }
  const Graph graph = with_channel_scales(
      run.graph, [&](const std::string& parameter) { return file.tensors.contains("weights." + parameter); });
  Weights weights = initial_weights(graph, run.recipe.seed);
  restore_weights(file, weights, path);
  QuantizedModel model = make_quantized(run, to_device(weights, run.device));
  model.load_state(get_tensors(file, "quantizer"));
  return model;
}

std::vector<at::Tensor> validation_inputs(const Run& run, int images) {
  const EvaluationSet set = run.data.validation_images();
  const size_t count = std::min<size_t>(static_cast<size_t>(images), set.indices.size());
  std::vector<at::Tensor> batches;
  for_inputs(run.data, *set.dataset, evenly_spaced(set.indices, count), run.recipe.evaluate.batch_size, run.device,
             [&](const at::Tensor& x) { batches.push_back(x); });
  return batches;
}

}  // namespace octet
