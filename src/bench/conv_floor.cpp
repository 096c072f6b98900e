#include "src/bench/conv_floor.h"

#include <algorithm>

#include "src/bench/network.h"

namespace octet {
namespace {

/// Rows (or columns) that windows read: windows further apart than they are wide leave some out.
long rows_read(int in, int out, int kernel, int stride) { return kernel >= stride ? in : std::min(in, out * kernel); }

}  // namespace

std::optional<ChipRates> chip_rates(const std::string& machine) {
  if (machine.starts_with("NVIDIA H200")) return ChipRates{4.28e12, 1.6e15};  // kernels/conv2d_int8/NOTES.md
  return std::nullopt;
}

double floor_milliseconds(const Int8Graph& graph, int node, int batch, const ChipRates& rates) {
  const Int8Node& n = graph.nodes[node];
  const Shape& in = graph.nodes[n.inputs[0]].shape;
  const Window& w = n.window;
  const long read =
      rows_read(in.h, n.shape.h, w.kernel_h, w.stride_h) * rows_read(in.w, n.shape.w, w.kernel_w, w.stride_w) * in.c;
  const double bytes = static_cast<double>(node_bytes(graph, node, batch) - batch * (in.elements() - read));
  const double operations = 2.0 * static_cast<double>(batch * node_multiply_adds(n));
  return 1e3 * std::max(bytes / rates.bytes_per_second, operations / rates.operations_per_second);
}

}  // namespace octet
