// SPDX-License-Identifier: Apache-2.0
// The list of engines, engines by name, the machine that they run on, and the checks that all of them do (support.h).
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <system_error>

#include "src/base/error.h"
#include "src/base/threads.h"
#include "src/cuda/device.h"
#include "src/engine/engine.h"
#include "src/engine/support.h"
#include "src/engine/time_convolutions.h"

namespace octet {
namespace {

#if !OCTET_CUDA
/// An engine that this build lacks: its name is known, and it tells how to get it.
class MissingEngine final : public Engine {
 public:
  explicit MissingEngine(std::string name) : name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  Support available() const override {
    return {false, "built without CUDA: install nvcc and run tools/setup.sh again"};
  }
  bool on_gpu() const override { return true; }
  Support supports(const Int8Graph&, int) const override { return available(); }
  std::unique_ptr<Program> compile(const Int8Graph&, const CompileOptions&) const override {
    throw usage_error("engine " + name_ + ": " + available().reason);
  }

 private:
  std::string name_;
};
#endif

constexpr const char* kAuto = "auto";

bool allowed(const Engine& engine, EngineDevices devices) { return devices == EngineDevices::any || !engine.on_gpu(); }

void check_usable(const std::string& name, EngineDevices devices) {
  if (const Support here = usable(find_engine(name), devices); !here.ok)
    throw usage_error(here.reason +
                      ": name others, or auto for those that can (in a recipe: --set evaluate.engines=[auto])");
}

}  // namespace

const std::vector<const Engine*>& engines() {
#if OCTET_CUDA
  static const std::vector<const Engine*> all = {&cuda_engine(), &cudnn_engine(), &cutlass_engine(), &cpu_engine(),
                                                 &reference_engine()};
#else
  static const MissingEngine cuda("cuda"), cudnn("cudnn"), cutlass("cutlass");
  static const std::vector<const Engine*> all = {&cuda, &cudnn, &cutlass, &cpu_engine(), &reference_engine()};
#endif
  return all;
}

std::vector<const Engine*> exact_engines() {
  std::vector<const Engine*> usable;
  for (const Engine* engine : engines()) {
    if (engine->exact() && engine->available().ok) usable.push_back(engine);
  }
  return usable;
}

const Engine& find_engine(std::string_view name) {
  std::string names;
  for (const Engine* engine : engines()) {
    if (engine->name() == name) return *engine;
    names += (names.empty() ? "" : ", ") + std::string(engine->name());
  }
  throw usage_error("unknown engine '" + std::string(name) + "'; engines: " + names);
}

EngineChoice parse_engine(const std::string& name) {
  const size_t colon = name.find(':');
  const Engine& engine = find_engine(name.substr(0, colon));
  if (colon == std::string::npos) return {&engine};
  if (!engine.on_gpu())
    throw usage_error(fmt::format("engine '{}': {} runs on no GPU and takes no number", name, engine.name()));
  EngineChoice choice{&engine};
  const char *begin = name.data() + colon + 1, *end = name.data() + name.size();
  const auto [last, failed] = std::from_chars(begin, end, choice.gpu);
  if (failed != std::errc() || last != end || choice.gpu < 0)
    throw usage_error(fmt::format("engine '{0}': behind the colon stands the number of a GPU, 0 for the first: {1}:0",
                                  name, engine.name()));
  return choice;
}

Support usable(const Engine& engine, EngineDevices devices) {
  if (!allowed(engine, devices))
    return {false, fmt::format("engine {} runs on a GPU, --device cpu excludes it", engine.name())};
  Support here = engine.available();
  if (!here.ok) here.reason = fmt::format("engine {} cannot run on this machine ({})", engine.name(), here.reason);
  return here;
}

std::vector<std::string> resolve_engines(const std::vector<std::string>& names, EngineDevices devices) {
  std::vector<std::string> engines;
  const auto named = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const std::string& name : names) {
    if (name != kAuto) {
      check_usable(name, devices);
      engines.push_back(name);
      continue;
    }
    for (const Engine* engine : exact_engines()) {
      const std::string found(engine->name());
      if (allowed(*engine, devices) && !named(names, found)) engines.push_back(found);
    }
  }
  return engines;
}

const Engine& preferred_engine(EngineDevices devices) { return find_engine(resolve_engines({kAuto}, devices).front()); }

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  std::string model = "unknown processor";
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
#if defined(__aarch64__)  // /proc/cpuinfo has numbers for it; boards have a name
  std::ifstream board("/proc/device-tree/model");
  model = "aarch64 processor";
  std::getline(board, model, '\0');
#endif
  return fmt::format("{}, {}", model, described_cores());
}

std::string machine_model() {
#if OCTET_CUDA
  if (gpu_status().usable) return cpu_model() + "; " + gpu_status().name;
#endif
  return cpu_model();
}

#if !OCTET_CUDA
TimedConvolutions time_convolutions(const Int8Graph&, const std::vector<int>&, const TimingOptions&) {
  resolve_engines({"cuda", "cudnn"});  // throws: this build has neither
  return {};
}
#endif

namespace {

/// Throws Error(promise) if the engine supports no node of the graph, so that the fallback would run them all.
void require_own_node(const Engine& engine, const Int8Graph& graph, const Engine& fallback) {
  int weighted = -1;  // the first node with weights: its reason tells more than that of an input or a pool
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
    if (engine.supports(graph, node).ok) return;
    if (weighted < 0 && !graph.nodes[node].weight.empty()) weighted = node;
  }
  const int shown = std::max(weighted, 0);
  throw promise_error("engine " + std::string(engine.name()) + " runs no node of " + graph.name + ", engine " +
                      std::string(fallback.name()) + " would run them all: node '" + graph.nodes[shown].name +
                      "': " + engine.supports(graph, shown).reason);
}

}  // namespace

void Engine::check(const Int8Graph& graph, const CompileOptions& options) const {
  check_compile(*this, graph, options);
}

void check_compile(const Engine& engine, const Int8Graph& graph, const CompileOptions& options,
                   const Fallback& fallback) {
  const std::string who = "engine " + std::string(engine.name());
  if (options.max_batch < 1 || options.threads < 0 || options.threads > kMostThreads) {
    throw usage_error(who + ": max_batch " + std::to_string(options.max_batch) + " must be 1 or more, threads " +
                      std::to_string(options.threads) + " 0 (all cores) to " + std::to_string(kMostThreads));
  }
  const Support machine = engine.available_on(options.gpu);
  if (!machine.ok) throw promise_error(who + " cannot run on this machine: " + machine.reason);
  validate(graph);
  for (int node = 0; node < static_cast<int>(graph.nodes.size()); ++node) {
    const Support support = engine.supports(graph, node);
    if (support.ok || (fallback.engine && fallback.engine->supports(graph, node).ok)) continue;
    throw promise_error(who + " cannot run node '" + graph.nodes[node].name + "': " + support.reason +
                        (fallback.cure.empty() ? "" : "; " + fallback.cure));
  }
  if (fallback.engine) require_own_node(engine, graph, *fallback.engine);
}

void check_outputs(const OutputMemory& outputs, size_t expected) {
  if (outputs.size() == expected) return;
  throw usage_error("memory for " + std::to_string(outputs.size()) + " outputs: the network gives " +
                    std::to_string(expected));
}

void check_run(int batch, int max_batch, const OutputMemory& outputs, size_t expected) {
  check_batch(batch, max_batch);
  check_outputs(outputs, expected);
}

void check_batch(int batch, int max_batch) {
  if (batch >= 1 && batch <= max_batch) return;
  throw usage_error("batch of " + std::to_string(batch) + " images: max_batch allows 1 to " +
                    std::to_string(max_batch));
}

void check_submit(size_t submitted) {
  if (submitted < Program::kMostSubmitted) return;
  throw usage_error(std::to_string(submitted) + " batches are submitted: collect one before the next");
}

void check_collect(size_t submitted) {
  if (submitted == 0) throw usage_error("nothing to collect: submit a batch first");
}

void Program::submit(const uint8_t* images, int batch) {
  check_submit(submitted_.size());
  submitted_.push_back({images, batch});
}

void Program::collect(const OutputMemory& outputs) {
  check_collect(submitted_.size());
  const Submitted first = submitted_.front();
  submitted_.pop_front();
  run(first.images, first.batch, outputs);
}

}  // namespace octet
