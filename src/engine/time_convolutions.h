// Convolutions of a network one by one, by each way that the GPU has: what `octet bench --layers-of` lays side by side.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/graph/int8_graph.h"

namespace octet {

/// Who may be measured, in the order of ConvolutionTimes.
enum Contestant { kCudaInt8, kCudnnInt8, kCudnnFp16, kCutlassInt8, kContestants };

struct ConvolutionTime {
  double milliseconds = 0;  ///< of one batch; 0: cannot run it
  std::string kernel;
  std::string reason;  ///< why it cannot
};
using ConvolutionTimes = std::array<ConvolutionTime, kContestants>;

struct TimedConvolutions {
  std::string machine;                  ///< "NVIDIA H200, cuDNN 9.19.0"
  std::vector<Contestant> contestants;  ///< all, but kCutlassInt8 only where this build and machine have that engine
  std::vector<ConvolutionTimes> times;  ///< one a node
};

struct TimingOptions {
  int batch = 128;
  int replays = 15;  ///< the median of these counts
};

/// Random codes and weights; device events; consecutive launches use other buffers, together several times the L2
/// cache. `nodes`: convolutions of `graph`, which has symmetric_s8 edges: all contestants run those. Throws
/// Error(usage) where the engines cuda and cudnn cannot run, with the reason, Error(interrupted) on Ctrl-C.
TimedConvolutions time_convolutions(const Int8Graph& graph, const std::vector<int>& nodes,
                                    const TimingOptions& options);

}  // namespace octet
