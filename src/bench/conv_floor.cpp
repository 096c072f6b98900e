#include "src/bench/conv_floor.h"

#include <algorithm>

#include "src/bench/network.h"

namespace octet {
namespace {

/// Rows (or columns) that windows read: windows further apart than they are wide leave some out.
long rows_read(int in, int out, int kernel, int stride) { return kernel >= stride ? in : std::min(in, out * kernel); }

}  // namespace

std::optional<ChipRates> chip_rates(const std::string& machine) {
  if (machine.find("NVIDIA H200") != std::string::npos)
    return ChipRates{4.28e12, 1.6e15};  // why not the peak of 1.93e15: kernels/conv2d_int8/NOTES.md
  return std::nullopt;
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

}  // namespace octet
