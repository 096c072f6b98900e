// SPDX-License-Identifier: Apache-2.0
// Times the convolutions of a network one by one on each library that the GPU has, for `octet bench --layers-of`.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/net/int8_graph.h"

namespace octet {

/// What may be measured, in the order of ConvolutionTimes.
enum Contestant { kCudaInt8, kCudnnInt8, kCudnnFp16, kCutlassInt8, kContestants };

struct ConvolutionTime {
  double milliseconds = 0;  ///< time of one batch; 0 if the contestant cannot run the convolution
  std::string kernel;
  std::string reason;  ///< why it cannot run it
};
using ConvolutionTimes = std::array<ConvolutionTime, kContestants>;

struct TimedConvolutions {
  std::string machine;                  ///< "NVIDIA H200, cuDNN 9.19.0"
  std::vector<Contestant> contestants;  ///< all; kCutlassInt8 only if this build and machine have that engine
  std::vector<ConvolutionTimes> times;  ///< one entry a node
};

struct TimingOptions {
  int batch = 128;
  int replays = 15;  ///< the median of so many is reported
};

/// Times the convolutions `nodes` of `graph` on random data by device events; consecutive launches use different
/// buffers, together several times the size of the L2 cache. The graph's activations must be symmetric_s8, which all
/// contestants support. Throws Error(usage) with the reason if engine cuda or cudnn cannot run here,
/// Error(interrupted) on Ctrl-C.
TimedConvolutions time_convolutions(const Int8Graph& graph, const std::vector<int>& nodes,
                                    const TimingOptions& options);

}  // namespace octet
