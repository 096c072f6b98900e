// The least time that a node can take on a GPU: what `octet bench --layers` and `--layers-of` hold kernels to.
#pragma once

#include <optional>
#include <string>

#include "src/cuda/device.h"
#include "src/graph/int8_graph.h"

namespace octet {

/// What a GPU gives at most.
struct ChipRates {
  double bytes_per_second = 0;       ///< of its memory, counting bytes read and bytes written
  double operations_per_second = 0;  ///< int8 on tensor cores without sparsity, a multiply-add being two
  /// False: the peaks that follow from the GPU's own clocks, which nothing passes. True: what was measured on a GPU of
  /// this name, a large copy and what good kernels reach; a little less.
  bool measured = false;
};

/// Of an H200 what was measured; of every other GPU the peaks by its clocks, its memory's bus and its multiprocessors.
/// Nothing for a GPU whose tensor cores' rate is not known here (compute capability 10.3, 11.0, 12.1 and newer), and
/// for one that uses the processor's memory: CUDA does not tell that memory's clock.
std::optional<ChipRates> chip_rates(const GpuStatus& gpu);

/// Of the current GPU; nothing where there is none, and in a build without CUDA.
std::optional<ChipRates> chip_rates();

/// "floors: at 3.35 TB/s and 2141 TOPS, the peaks by this GPU's own clocks", or why there are none.
std::string describe(const std::optional<ChipRates>& rates);

/// The larger of bytes over memory's rate and operations over the tensor cores', of one batch: inputs, weights and
/// output each once, of a convolution's input only the pixels that a window reads.
double floor_milliseconds(const Int8Graph& graph, int node, int batch, const ChipRates& rates);

/// The same of so many bytes and operations.
double floor_milliseconds(long bytes, long operations, const ChipRates& rates);

/// Values of one image between the windows of a convolution that are further apart than they are wide; else 0.
long pixels_not_read(const Int8Graph& graph, int node);

}  // namespace octet
