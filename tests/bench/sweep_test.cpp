// SPDX-License-Identifier: Apache-2.0
#include "src/bench/bench.h"

#include <gtest/gtest.h>

namespace octet {
namespace {

TEST(BenchSweep, ChartSaysNetworkAndMachineAndHasACurveForEachEngine) {
  const std::string svg = svg_sweep("net on a machine", {{"cuda", 0, 1, 10}, {"cuda", 0, 512, 90}, {"cudnn", 0, 1, 5}});
  EXPECT_NE(svg.find("xmlns=\"http://www.w3.org/2000/svg\""), std::string::npos);
  EXPECT_NE(svg.find(">net on a machine; host to host"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">batch<"), std::string::npos);
  EXPECT_NE(svg.find("cuda, batch 512: 90.00<"), std::string::npos) << svg;
  EXPECT_NE(svg.find("cudnn, batch 1: 5.000<"), std::string::npos);
  const std::string sizes = svg_sweep("net", {{"cuda", 160, 0, 10}, {"cuda", 224, 0, 5}});
  EXPECT_NE(sizes.find(">height and width<"), std::string::npos);
  const std::string one = svg_sweep("net", {{"cuda", 0, 64, 10}});  // the others were not measured
  EXPECT_NE(one.find("cuda, batch 64: 10.00"), std::string::npos) << one;
}

}  // namespace
}  // namespace octet
