// SPDX-License-Identifier: Apache-2.0
// octet doctor: what this machine can run, and why not the rest.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/core/cpu.h"
#include "src/base/text.h"
#include "src/engine/engine.h"
#include "tools/octet/commands.h"

#if OCTET_CUDA
#include "src/cuda/device.h"
#else
#include <dlfcn.h>
#endif
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace octet::cli {
namespace {

/// Returns the NVIDIA GPUs that this process sees, with their driver, in CUDA's order; one entry with the reason if
/// none is usable.
#if OCTET_CUDA

std::vector<Support> cuda_gpus() {
  std::vector<Support> gpus;
  for (int number = 0; number < std::max(1, gpu_status(0).visible); ++number) {
    const GpuStatus& gpu = gpu_status(number);
    gpus.push_back({gpu.usable, gpu.reason});
    if (gpu.usable)
      gpus.back().reason = fmt::format(
          "{}, compute capability {}.{}, {:.0f} GB, driver for CUDA {}.{}", gpu.name, gpu.capability / 10,
          gpu.capability % 10, static_cast<double>(gpu.memory_bytes) / 1e9, gpu.driver / 1000, gpu.driver % 1000 / 10);
  }
  return gpus;
}

#else

std::vector<Support> cuda_gpus() {
  // The driver's own library tells, so that no CUDA toolkit is needed to ask.
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return {{false, "no NVIDIA driver (libcuda.so.1 not found)"}};
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  int devices = 0;
  if (init == nullptr || count == nullptr) return {{false, "libcuda.so.1 lacks cuInit or cuDeviceGetCount"}};
  if (const int status = init(0); status != 0)
    return {{false, fmt::format("the NVIDIA driver answers error {} to cuInit", status)}};
  if (count(&devices) != 0 || devices == 0) return {{false, "the NVIDIA driver finds no GPU"}};
  return {{true, counted(devices, "GPU")}};
}

#endif

struct Finding {
  std::string what;
  Support support;
};

/// Returns whether `octet run --kernels NAME` works, by compiling a network of one layer.
Support run_by(const std::string& name) {
  Int8Graph graph;
  Int8Node input;
  input.name = "input";
  input.shape = {1, 1, 1};
  input.out = {1.0f, 0, 0, 255};
  input.clamp_min = 0, input.clamp_max = 255;
  Int8Node linear;
  linear.name = "linear", linear.op = Int8Op::linear, linear.inputs = {0}, linear.shape = {1, 1, 1};
  linear.float_output = true, linear.weight = {1}, linear.weight_scale = {1.0f}, linear.multiplier = {1.0f};
  linear.bias = {0.0f};
  graph.nodes = {input, linear}, graph.outputs = {1};
  graph.preprocessing.mean = {0.0f}, graph.preprocessing.std = {1.0f};
  try {
    CompileOptions options;
    options.kernels = name;
    find_engine("cpu").compile(graph, options);
    return {true, "ready"};
  } catch (const Error& error) {
    return {false, error.what()};
  }
}

#if defined(__aarch64__)

/// Returns what Linux says that the processor has beyond ARMv8.0, of what matters for networks, under the names that
/// /proc/cpuinfo uses. Bits: Linux, arch/arm64/include/uapi/asm/hwcap.h.
std::string arm_features() {
  struct Feature {
    const char* name;
    unsigned long word;
    int bit;
  };
  constexpr Feature kFeatures[] = {{"asimdhp", AT_HWCAP, 10}, {"asimddp", AT_HWCAP, 20}, {"sve", AT_HWCAP, 22},
                                   {"i8mm", AT_HWCAP2, 13},   {"bf16", AT_HWCAP2, 14},   {"sve2", AT_HWCAP2, 1},
                                   {"sme", AT_HWCAP2, 23}};
  std::string names = "asimd";
  for (const Feature& feature : kFeatures)
    if ((::getauxval(feature.word) >> feature.bit & 1) != 0) names += std::string(" ") + feature.name;
  return names;
}

#endif

std::vector<Finding> examine() {
  std::vector<Finding> findings;
  for (const Engine* engine : engines()) {
    Support support = engine->available();
    if (support.ok && support.reason.empty()) support.reason = "ready";
    findings.push_back({fmt::format("engine {}", engine->name()), support});
  }
  for (const kernels::CpuIsa isa : kernels::kCpuIsas) {
    const std::string name(kernels::cpu_isa_name(isa));
    findings.push_back({fmt::format("cpu kernels {}", name), run_by(name)});
  }
#if defined(__aarch64__)
  findings.push_back({"Arm features", {true, arm_features()}});
#endif
  const std::vector<Support> gpus = cuda_gpus();
  for (size_t gpu = 0; gpu < gpus.size(); ++gpu)
    findings.push_back({gpus.size() == 1 ? "NVIDIA GPU" : fmt::format("NVIDIA GPU cuda:{}", gpu), gpus[gpu]});
#if OCTET_TRAINING
  const bool on_gpu = gpus.front().ok && find_engine("cuda").available().ok;
  findings.push_back({"training", {true, on_gpu ? "LibTorch on the GPU and on the CPU" : "LibTorch on the CPU"}});
#else
  findings.push_back({"training", {false, "built with -DOCTET_TRAINING=OFF"}});
#endif
  const std::string fashion = "/usr/share/datasets/fashion-mnist";
  findings.push_back({"Fashion-MNIST", std::filesystem::exists(fashion)
                                           ? Support{true, fashion}
                                           : Support{false, "apt-get install dataset-fashion-mnist"}});
  return findings;
}

ExitCode doctor(const Common& common) {
  const std::vector<Finding> findings = examine();
  TextTable table({{"what", Align::left}, {"usable", Align::left}, {"", Align::left}});
  for (const Finding& f : findings) table.add_row({f.what, f.support.ok ? "yes" : "no", f.support.reason});
  print_result(common, fmt::format("octet {} on {}\n\n{}", OCTET_VERSION, cpu_model(), table.render()), [&] {
    nlohmann::json list = nlohmann::json::array();
    for (const Finding& f : findings)
      list.push_back({{"what", f.what}, {"usable", f.support.ok}, {"detail", f.support.reason}});
    return nlohmann::json{{"version", OCTET_VERSION}, {"machine", cpu_model()}, {"findings", list}}.dump(2);
  });
  return ExitCode::ok;
}

}  // namespace

void add_doctor(CLI::App& app, const Common& common, Action& action) {
  CLI::App* command = app.add_subcommand("doctor", "what this machine can run, and why not the rest");
  command->callback([&common, &action] { action = [&common] { return doctor(common); }; });
}

}  // namespace octet::cli
