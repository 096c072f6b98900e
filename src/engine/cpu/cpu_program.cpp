// SPDX-License-Identifier: Apache-2.0
#include "src/engine/cpu/cpu_program.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/base/error.h"
#include "src/engine/fusion.h"
#include "src/engine/support.h"

namespace octet {
namespace {

/// Rewrites a lookup's table for shifted codes of its signed input or output.
void shift_table(Int8Node& node, bool x_signed) {
  std::vector<uint8_t> shifted(node.table.size());
  for (size_t i = 0; i < shifted.size(); ++i) {
    shifted[x_signed ? i ^ kSignedShift : i] =
        static_cast<uint8_t>(node.out.is_signed() ? node.table[i] ^ kSignedShift : node.table[i]);
  }
  node.table = std::move(shifted);
}

}  // namespace

Int8Graph with_unsigned_edges(Int8Graph graph) {
  for (Int8Node& node : graph.nodes) {
    if (node.op == Int8Op::lookup) shift_table(node, graph.nodes[node.inputs[0]].out.is_signed());
  }
  for (Int8Node& node : graph.nodes) {
    if (!node.out.is_signed()) continue;
    node.out.zero_point += kSignedShift;
    node.out.quant_min += kSignedShift;
    node.out.quant_max += kSignedShift;
    node.clamp_min += kSignedShift;
    node.clamp_max += kSignedShift;
  }
  return graph;
}

namespace {

// Images that go through the network together: more images reuse the weights in the cache, fewer keep activations in
// it. So fewer go through its beginning, up to the last layer whose tensors have more than kLargeLayer bytes an image.
// README.md has the measurement.
constexpr int kChunk = 8, kFewImages = 4;
constexpr size_t kLargeLayer = 768 * 1024;

// Pieces of a step for each thread: enough to balance the threads, few enough that the hand-off costs nothing.
constexpr int kPiecesPerThread = 8;

}  // namespace

CpuProgram::CpuProgram(const Int8Graph& original, const CompileOptions& options, kernels::CpuIsa isa)
    : max_batch_(options.max_batch), pool_(options.threads), outputs_(original.outputs) {
  Int8Graph graph = with_unsigned_edges(original);
  const std::vector<int> merged = merged_convolutions(graph);
  const Lowering lowering{graph, kernels::cpu_channel_stride};
  std::vector<size_t> bytes;
  std::vector<int> buffer;
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
    Int8Node& n = graph.nodes[node];
    Layer layer;
    layer.name = n.name;
    if (const int convolution = merged[node]; convolution >= 0) {
      layer.step = layers_[convolution].step->with_lookup(lowering.lookup_table(node));
      layers_[convolution].lookup = node;
      n.inputs = layers_[convolution].inputs;
    } else {
      layer.step = make_cpu_step(lowering, node, isa);
    }
    layer.inputs = n.inputs;
    layer.buffer = layer.step ? node : buffer[n.inputs[0]];
    layer.shape = n.shape;
    layer.is_signed = original.nodes[node].out.is_signed();
    layer.stride = lowering.output_stride(node);
    layer.image_bytes = n.float_output ? 0 : static_cast<size_t>(n.shape.h) * n.shape.w * layer.stride;
    layer.output_bytes = n.image_bytes();
    if (layer.step) workspace_bytes_ = std::max(workspace_bytes_, aligned(layer.step->workspace_bytes()));
    bytes.push_back(layer.image_bytes);
    buffer.push_back(layer.buffer);
    layers_.push_back(std::move(layer));
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (graph.nodes[outputs_[i]].float_output) layers_[outputs_[i]].output = static_cast<int>(i);
  }
  lives_ = lifetimes(graph, bytes, buffer);
  workspaces_ = AlignedBuffer(workspace_bytes_ * pool_.size());
  size_t most = 1;
  for (const Layer& layer : layers_) most = std::max(most, layer.inputs.size());
  inputs_.reserve(most);
  chunk_memory_ = make_memory(std::min(max_batch_, kChunk), false);
}

std::vector<CpuProgram::Stretch> CpuProgram::make_stretches(int images) const {
  const auto bytes = [&](const Layer& layer) {
    size_t sum = layer.image_bytes;
    for (const int input : layer.inputs) sum += layers_[input].image_bytes;
    return sum;
  };
  const int all = static_cast<int>(layers_.size());
  int large = 0;
  for (int node = 0; node < all && images > kFewImages; ++node) {
    if (bytes(layers_[node]) > kLargeLayer) large = node + 1;
  }
  std::vector<Stretch> stretches;
  if (large > 0) stretches.push_back({0, large, kFewImages});
  if (large < all) stretches.push_back({large, all, images});
  return stretches;
}

CpuProgram::Memory CpuProgram::make_memory(int images, bool with_tap) const {
  Memory memory;
  memory.images = images;
  const int all = static_cast<int>(layers_.size());
  memory.stretches = with_tap ? std::vector<Stretch>{{0, all, images}} : make_stretches(images);
  const auto stretch_of = [&](int node) {
    return *std::find_if(memory.stretches.begin(), memory.stretches.end(),
                         [&](const Stretch& stretch) { return node < stretch.last; });
  };
  std::vector<BufferLife> lives = lives_;
  std::vector<size_t> steps(lives.size());
  for (size_t node = 0; node < lives.size(); ++node) {
    BufferLife& life = lives[node];
    if (layers_[node].lookup >= 0 && !with_tap) life.bytes = 0;
    const Stretch written = stretch_of(life.first), read = stretch_of(life.last);
    size_t bytes = life.bytes * written.images;
    if (written.images < images && (read.images == images || life.last == all - 1)) {
      // Holds all images, from the first of them that is written to the last.
      steps[node] = life.bytes;
      bytes = life.bytes * images;
      life.first = written.first;
    }
    life.bytes = bytes + (bytes > 0 ? kernels::kCpuReadSlack : 0);
  }
  const MemoryPlan plan = plan_memory(lives);
  memory.arena = AlignedBuffer(plan.bytes);
  for (const Layer& layer : layers_) {
    memory.outputs.push_back(memory.arena.data() + plan.offsets[layer.buffer]);
    memory.image_steps.push_back(steps[layer.buffer]);
  }
  return memory;
}

void CpuProgram::run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap) {
  check_run(batch, max_batch_, outputs, outputs_.size());
  if (tap) {
    run_chunk(make_memory(batch, true), {images, 0, batch}, outputs, tap);  // a tap sees the whole batch at once
    return;
  }
  const size_t image_bytes = layers_.front().shape.elements();
  for (int first = 0; first < batch; first += chunk_memory_.images) {
    const int count = std::min(chunk_memory_.images, batch - first);
    run_chunk(chunk_memory_, {images + first * image_bytes, first, count}, outputs, tap);
  }
}

void CpuProgram::run_chunk(const Memory& memory, const Chunk& chunk, const OutputMemory& outputs, const NodeTap& tap) {
  for (const Stretch& stretch : memory.stretches) {
    for (int first = 0; first < chunk.count; first += stretch.images) {
      const int count = std::min(stretch.images, chunk.count - first);
      for (int node = stretch.first; node < stretch.last; ++node) {
        if (layers_[node].lookup >= 0 && !tap) continue;
        if (layers_[node].step) run_layer(memory, chunk, first, count, node, outputs);
        if (tap) show(tap, node, memory, count, outputs);
      }
    }
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Layer& layer = layers_[outputs_[i]];
    if (layer.output >= 0) continue;
    copy_codes(outputs_[i], memory, chunk.count, static_cast<uint8_t*>(outputs[i]) + layer.output_bytes * chunk.first);
  }
}

void CpuProgram::run_layer(const Memory& memory, const Chunk& chunk, int first, int count, int node,
                           const OutputMemory& outputs) {
  const Layer& layer = layers_[node];
  const auto place = [&](int of) { return memory.outputs[of] + memory.image_steps[of] * first; };
  inputs_.clear();
  if (node == 0) inputs_.push_back(chunk.images + layer.shape.elements() * first);
  for (const int input : layer.inputs) inputs_.push_back(place(input));
  void* y = place(node);
  if (layer.output >= 0) y = static_cast<uint8_t*>(outputs[layer.output]) + layer.output_bytes * (chunk.first + first);
  run_step(*layer.step, {count, inputs_.data(), y});
}

void CpuProgram::run_step(const CpuStep& step, const StepData& data) {
  const int tasks = step.tasks(data.images);
  const int pieces = pool_.size() == 1 ? 1 : std::min(tasks, pool_.size() * kPiecesPerThread);
  const auto body = [&](int piece, int thread) {
    const auto bound = [&](int p) { return static_cast<int>(static_cast<long>(tasks) * p / pieces); };
    step.run(data, {bound(piece), bound(piece + 1)}, workspaces_.data() + workspace_bytes_ * thread);
  };
  pool_.run(pieces, std::ref(body));  // a reference: std::function keeps it without allocating
}

void CpuProgram::copy_codes(int node, const Memory& memory, int count, uint8_t* codes) const {
  const Layer& layer = layers_[node];
  const size_t channels = layer.shape.c, pixels = static_cast<size_t>(layer.shape.h) * layer.shape.w * count;
  const uint8_t flip = layer.is_signed ? kSignedShift : 0;
  for (size_t pixel = 0; pixel < pixels; ++pixel) {
    const uint8_t* in = memory.outputs[node] + pixel * layer.stride;
    for (size_t c = 0; c < channels; ++c) codes[pixel * channels + c] = in[c] ^ flip;
  }
}

void CpuProgram::show(const NodeTap& tap, int node, const Memory& memory, int count,
                      const OutputMemory& outputs) const {
  const Layer& layer = layers_[node];
  if (layer.output >= 0) return tap(node, outputs[layer.output], layer.output_bytes * count);
  std::vector<uint8_t> codes(layer.output_bytes * count);
  copy_codes(node, memory, count, codes.data());
  tap(node, codes.data(), codes.size());
}

std::vector<LayerInfo> CpuProgram::layers() const {
  std::vector<LayerInfo> layers;
  for (const Layer& layer : layers_) {
    const CpuStep* step = (layer.lookup < 0 ? layer : layers_[layer.lookup]).step.get();
    layers.push_back({layer.name, step ? step->kernel() : "alias"});
  }
  for (const Layer& layer : layers_) {
    if (layer.lookup >= 0) layers[layer.lookup].kernel = "merged";
  }
  return layers;
}

namespace {

kernels::CpuIsa choose_isa(const std::string& name) {
  if (name == "auto") return kernels::best_cpu_isa();
  std::string names = "auto";
  for (const kernels::CpuIsa isa : kernels::kCpuIsas) {
    names += ", " + std::string(kernels::cpu_isa_name(isa));
    if (name != kernels::cpu_isa_name(isa)) continue;
    if (kernels::cpu_isa_available(isa)) return isa;
    throw usage_error(
        "engine cpu: kernels '" + name +
        "' need instructions that this processor lacks or the system does not permit; the best here is '" +
        std::string(kernels::cpu_isa_name(kernels::best_cpu_isa())) + "'");
  }
  throw usage_error("engine cpu: unknown kernels '" + name + "'; allowed: " + names);
}

/// int8 on x86-64 and aarch64; the portable path runs everywhere.
class CpuEngine final : public Engine {
 public:
  std::string_view name() const override { return "cpu"; }
  Support available() const override { return {true, ""}; }
  /// Also throws Error(usage) if options.kernels is unknown or names a path that this machine cannot run.
  std::unique_ptr<Program> compile(const Int8Graph& graph, const CompileOptions& options) const override {
    const kernels::CpuIsa isa = choose_isa(options.kernels);
    check(graph, options);
    return std::make_unique<CpuProgram>(graph, options, isa);
  }
};

}  // namespace

const Engine& cpu_engine() {
  static const CpuEngine engine;
  return engine;
}

}  // namespace octet
