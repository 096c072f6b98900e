// The least time that a node can take on a GPU: what `octet bench --layers` and `--layers-of` hold kernels to.
#pragma once

#include <optional>
#include <string>

#include "src/graph/int8_graph.h"

namespace octet {

/// What a kernel can hope for of a GPU.
struct ChipRates {
  double bytes_per_second = 0;       ///< a large copy, counting bytes read and bytes written
  double operations_per_second = 0;  ///< int8 on tensor cores, a multiply-add being two; not the peak
};

/// The rates of a GPU that has been measured and that `machine` names.
std::optional<ChipRates> chip_rates(const std::string& machine);

/// The larger of bytes over memory's rate and operations over the tensor cores', of one batch: inputs, weights and
/// output each once, of a convolution's input only the pixels that a window reads.
double floor_milliseconds(const Int8Graph& graph, int node, int batch, const ChipRates& rates);

/// The same of so many bytes and operations.
double floor_milliseconds(long bytes, long operations, const ChipRates& rates);

/// Values of one image between the windows of a convolution that are further apart than they are wide; else 0.
long pixels_not_read(const Int8Graph& graph, int node);

}  // namespace octet
