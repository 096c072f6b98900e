// SPDX-License-Identifier: Apache-2.0
// The list of engines, engines by name, and the machine that they run on.
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

}  // namespace octet
