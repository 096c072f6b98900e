// SPDX-License-Identifier: Apache-2.0
// What a network takes of the machine: the minimum time of a node on a GPU, which is the bytes and operations that it
// needs over the GPU's rates, and the energy of a measurement.
#include "src/bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#if OCTET_CUDA
#include "src/cuda/device.h"
#endif

namespace octet {
namespace {

/// Returns how many rows (or columns) windows read. A stride that exceeds the kernel leaves some out.
long rows_read(int in, int out, int kernel, int stride) { return kernel >= stride ? in : std::min(in, out * kernel); }

/// Returns the int8 operations of a multiprocessor's tensor cores in one clock, without sparsity, where a multiply-add
/// is two; 0 if not known. They follow from the peak, multiprocessors and clock of the GPU that NVIDIA's white paper
/// names.
double operations_per_clock(int capability) {
  switch (capability) {
    case 80:
      return 4096;  // "A100 Tensor Core GPU Architecture", 2020: A100, 624 TOPS, 108 at 1,410 MHz
    case 86:
      return 2048;  // "Ampere GA102 GPU Architecture", 2021: RTX 3090, 284 TOPS, 82 at 1,695 MHz
    case 87:
      return 4096;  // "Jetson AGX Orin Series" technical brief, 2022: 170 TOPS with sparsity, 16 at 1,300 MHz
    case 89:
      return 2048;  // "Ada GPU Architecture", 2023: RTX 4090, 660.6 TOPS, 128 at 2,520 MHz
    case 90:
      return 8192;  // "H100 Tensor Core GPU Architecture", 2022: H100 SXM5, 1,979 TOPS, 132 at 1,830 MHz
    case 100:
      return 16384;  // "HGX B200" data sheet, 2024: 4,500 TOPS a GPU; 148 multiprocessors
    case 120:
      return 2048;  // "RTX Blackwell GPU Architecture", 2025: RTX 5090, 838 TOPS, 170 at 2,407 MHz
    default:
      return 0;
  }
}

}  // namespace

long node_multiply_adds(const Int8Node& node) {
  if (node.weight.empty()) return 0;
  const long per_output = static_cast<long>(node.weight.size()) / node.shape.c;  // R * S * C / groups
  return node.shape.elements() * per_output;
}

long node_bytes(const Int8Graph& graph, int node, int batch) {
  const Int8Node& n = graph.nodes[node];
  auto activations = static_cast<long>(n.image_bytes());
  if (n.inputs.empty()) activations += n.shape.elements();  // the image
  for (const int input : n.inputs) activations += graph.nodes[input].shape.elements();
  return batch * activations + static_cast<long>(n.weight.size());
}

std::optional<ChipRates> chip_rates(const GpuStatus& gpu) {
  if (gpu.name.starts_with("NVIDIA H200") && gpu.multiprocessors == 132)  // the complete GPU, not a part (MIG)
    return ChipRates{4.28e12, 1.6e15, true};  // why not the peak of 1.93e15: tools/lab/notebooks/conv.md
  const bool orin = gpu.capability == 87;
  if (!gpu.usable || gpu.integrated != orin) return std::nullopt;
  // All of these memories transfer twice per clock, or state a clock for which that is right (GDDR6X, GDDR7). An Orin
  // states its GPU's clock: the data sheets of AGX Orin, and of the smaller ones, have LPDDR5 of 256 and 128 bits.
  const ChipRates peaks{
      orin ? (gpu.multiprocessors > 8 ? 204.8e9 : 102.4e9) : 2e3 * gpu.memory_clock_khz * gpu.memory_bus_bits / 8,
      1e3 * gpu.clock_khz * gpu.multiprocessors * operations_per_clock(gpu.capability)};
  if (peaks.bytes_per_second <= 0 || peaks.operations_per_second <= 0) return std::nullopt;
  return peaks;
}

std::optional<ChipRates> chip_rates() {
#if OCTET_CUDA
  return chip_rates(gpu_status());
#else
  return std::nullopt;
#endif
}

std::string describe(const std::optional<ChipRates>& rates) {
  if (!rates) return "no floors: the peaks of this GPU are not known";
  return fmt::format(
      "floors: at {:.2f} TB/s and {:.0f} TOPS, {}", rates->bytes_per_second / 1e12, rates->operations_per_second / 1e12,
      rates->measured ? "measured on such a GPU: a large copy, and good kernels" : "the peaks of such a GPU");
}

long pixels_not_read(const Int8Graph& graph, int node) {
  const Int8Node& n = graph.nodes[node];
  if (n.op != Int8Op::conv2d) return 0;
  const Shape& in = graph.nodes[n.inputs[0]].shape;
  const Window& w = n.window;
  return in.elements() -
         rows_read(in.h, n.shape.h, w.kernel_h, w.stride_h) * rows_read(in.w, n.shape.w, w.kernel_w, w.stride_w) * in.c;
}

double floor_milliseconds(long bytes, long operations, const ChipRates& rates) {
  return 1e3 * std::max(static_cast<double>(bytes) / rates.bytes_per_second,
                        static_cast<double>(operations) / rates.operations_per_second);
}

double floor_milliseconds(const Int8Graph& graph, int node, int batch, const ChipRates& rates) {
  return floor_milliseconds(node_bytes(graph, node, batch) - batch * pixels_not_read(graph, node),
                            2 * batch * node_multiply_adds(graph.nodes[node]), rates);
}

namespace {

std::optional<double> joules_in(const std::string& file) {
  double microjoules = 0;
  if (!(std::ifstream(file) >> microjoules)) return std::nullopt;
  return 1e-6 * microjoules;
}

std::optional<double> of_gpu() {
#if OCTET_CUDA
  return gpu_joules();
#else
  return std::nullopt;
#endif
}

}  // namespace

EnergyMeter::EnergyMeter(const std::string& powercap) {
  for (int package = 0;; ++package) {  // "intel-rapl:0", also on AMD; "intel-rapl:0:1" would be a part of a package
    const std::string folder = fmt::format("{}/intel-rapl:{}", powercap, package);
    std::error_code missing;
    if (!std::filesystem::exists(folder, missing)) break;
    std::string name;  // "package-0"; "psys" is the complete machine, including packages
    std::getline(std::ifstream(folder + "/name") >> std::ws, name);
    if (!name.starts_with("package")) continue;
    const std::string counter = folder + "/energy_uj";
    const auto begun = joules_in(counter), range = joules_in(folder + "/max_energy_range_uj");
    if (begun && range) packages_.push_back({counter, *begun, *range});
  }
  gpu_begun_ = of_gpu();
  start_ = std::chrono::steady_clock::now();
}

Energy EnergyMeter::drawn() const {
  Energy energy{.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count()};
  if (const auto now = of_gpu(); now && gpu_begun_) energy.gpu_joules = *now - *gpu_begun_;
  for (const Package& package : packages_) {
    const auto now = joules_in(package.counter);
    if (!now) continue;
    const double drawn = *now - package.begun;
    energy.cpu_joules = energy.cpu_joules.value_or(0) + (drawn < 0 ? drawn + package.range : drawn);
  }
  return energy;
}

}  // namespace octet
