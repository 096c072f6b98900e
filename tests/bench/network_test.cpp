// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>
#include <tuple>

#include "src/base/error.h"
#include "src/bench/bench.h"
#include "tests/eval/fakes.h"

namespace octet {
namespace {

using testing::fake_graph;
using testing::FakeProgram;
using testing::FunctionProgram;

TEST(Bench, TimesTheNetworkOnRandomImages) {
  const Int8Graph graph = fake_graph(5);
  std::set<uint8_t> pixels;
  long runs = 0;
  FunctionProgram program([&](const uint8_t* images, int batch, float*) {
    ASSERT_EQ(batch, 64);
    pixels.insert(images, images + 4 * batch);
    std::this_thread::sleep_for(std::chrono::milliseconds(++runs == 1 ? 200 : 5));
  });
  const BenchResult r = bench_program(program, graph, {64, 0.05, false});
  EXPECT_GE(r.runs, 3);
  EXPECT_LT(r.runs, 12);
  EXPECT_EQ(runs, r.runs + 1);  // the slow first run was the warm-up
  EXPECT_GE(r.median_ms, 5);
  EXPECT_GE(r.p99_ms, r.median_ms);
  EXPECT_LT(r.p99_ms, 150);
  EXPECT_DOUBLE_EQ(r.images_per_second, 64e3 / r.median_ms);
  EXPECT_TRUE(r.layers.empty());
  EXPECT_GT(pixels.size(), 100u);
}

TEST(Bench, SaysWhatAnImageTakes) {
  BenchResult r{.batch = 8, .median_ms = 1};
  EXPECT_EQ(describe(r).find("energy"), std::string::npos);
  r.gpu_joules = 0.0042;
  r.gpu_watts = 310;
  r.cpu_joules = 0.5;
  const std::string text = describe(r);
  EXPECT_NE(text.find("energy: 4.20 mJ an image of the GPU, at 310 W"), std::string::npos) << text;
  EXPECT_NE(text.find("energy: 500 mJ an image of the processors"), std::string::npos) << text;
}

TEST(Bench, TimesLayersBetweenTaps) {
  Int8Graph graph = fake_graph(5);
  graph.nodes[1].weight.resize(3 * 9);  // 3x3 convolution of one channel
  graph.nodes[3].weight.resize(5 * 2);
  FakeProgram program(graph);
  program.change = [](int node, long image, uint8_t*) {
    if (node == 2 && image % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  const BenchResult r = bench_program(program, graph, {2, 0, true});
  ASSERT_EQ(r.layers.size(), 4u);
  EXPECT_EQ(r.layers[1].name, "layer1.0.conv1");
  EXPECT_EQ(r.layers[1].multiply_adds, 2 * 12 * 9);
  EXPECT_EQ(r.layers[3].multiply_adds, 2 * 10);
  EXPECT_EQ(r.multiply_adds, 2 * (12 * 9 + 10));
  EXPECT_GE(r.layers[2].milliseconds, 5);
  EXPECT_LT(r.layers[1].milliseconds, 5);
  EXPECT_EQ(r.runs, 3);
  const std::string text = describe(r);
  EXPECT_NE(text.find("batch 2: median "), std::string::npos) << text;
  EXPECT_NE(text.find("layer1.0.conv1"), std::string::npos) << text;
}

/// A program on a GPU: it tells what its device's events measured.
class DeviceProgram : public FunctionProgram {
 public:
  DeviceProgram() : FunctionProgram([](const uint8_t*, int, float*) {}) {}
  std::vector<double> time_on_device(int batch, int runs) override {
    EXPECT_EQ(batch, 2);
    asked.push_back(runs);
    std::vector<double> milliseconds(runs, 0.5);
    milliseconds[0] = 40;  // an outlier: neither median nor p99 of many
    return milliseconds;
  }
  std::vector<double> time_layers_on_device(int, int) override { return layer_times; }
  std::vector<LayerInfo> layers() const override { return infos; }
  std::vector<int> asked;
  std::vector<double> layer_times = {0.1, 0.2, 0, 0.3};
  std::vector<LayerInfo> infos;
};

TEST(Bench, TheTableNamesEnginesWhereSeveralRanNodes) {
  const Int8Graph graph = fake_graph(5);
  DeviceProgram program;
  const auto bench = [&](const char* of_pool) {
    program.infos = {{"layer1.0.conv1", "cudnn_conv", "cudnn"}, {"pool", "max_pool_cuda", of_pool}};
    return bench_program(program, graph, {2, 0.01, true});
  };
  const BenchResult mixed = bench("cuda");
  EXPECT_EQ(mixed.layers[0].engine, "");
  EXPECT_EQ(mixed.layers[1].engine, "cudnn");
  EXPECT_EQ(mixed.layers[2].engine, "cuda");
  const std::string text = describe(mixed);
  EXPECT_NE(text.find(" engine "), std::string::npos) << text;
  EXPECT_LT(text.find("cudnn "), text.find("cudnn_conv")) << text;
  EXPECT_EQ(describe(bench("cudnn")).find(" engine "), std::string::npos);
}

TEST(Bench, ReportsDeviceEventsBesideHostTime) {
  Int8Graph graph = fake_graph(5);
  graph.nodes[1].weight.resize(3 * 9);
  DeviceProgram program;
  const BenchResult r = bench_program(program, graph, {2, 0.1, true});
  ASSERT_EQ(program.asked.size(), 2u);
  EXPECT_EQ(program.asked[1], 200);  // 0.1 s of runs of 0.5 ms
  EXPECT_DOUBLE_EQ(r.device_ms, 0.5);
  EXPECT_DOUBLE_EQ(r.device_p99_ms, 0.5);
  ASSERT_EQ(r.layers.size(), 4u);
  EXPECT_DOUBLE_EQ(r.layers[3].milliseconds, 0.3);
  EXPECT_EQ(r.layers[1].bytes, 2 * (4 + 12) + 27);  // two images of 4 codes in, 12 out; the weights once
  EXPECT_EQ(r.layers[3].bytes, 2 * (2 + 5 * 4));    // logits are floats
  const std::string text = describe(r);
  EXPECT_NE(text.find("on the GPU alone: median 500 µs, p99 500 µs, 4,000 images/s"), std::string::npos) << text;
  EXPECT_NE(text.find("GB/s"), std::string::npos) << text;
  EXPECT_EQ(text.find("compiled in"), std::string::npos) << text;  // bench_program() did not see it
}

TEST(Bench, TellsHowLongCompilingTook) {
  BenchResult r;
  r.compile_seconds = 0.25;
  EXPECT_NE(describe(r).find("compiled in 250 ms"), std::string::npos) << describe(r);
}

TEST(Bench, HoldsLayersToTheirFloors) {
  const Int8Graph graph = fake_graph(5);
  DeviceProgram program;
  const std::string without = describe(bench_program(program, graph, {2, 0.01, true}));
  EXPECT_EQ(without.find("x floor"), std::string::npos) << without;
  EXPECT_NE(without.find("no floors: the peaks of this GPU are not known"), std::string::npos) << without;
  const BenchResult r = bench_program(program, graph, {2, 0.01, true, ChipRates{2e3, 1e12}});
  EXPECT_DOUBLE_EQ(r.layers[0].floor_ms, 0);                      // the image is nobody's work
  EXPECT_DOUBLE_EQ(r.layers[3].floor_ms, 2 * (2 + 5 * 4) / 2.0);  // bytes at 2 a millisecond
  const std::string text = describe(r);
  EXPECT_NE(text.find("x floor"), std::string::npos) << text;
  EXPECT_NE(text.find("floors: at 0.00 TB/s and 1 TOPS, the peaks of such a GPU\n"), std::string::npos) << text;
}

TEST(Bench, AMergedLookupsTimeIsItsConvolutions) {
  const Int8Graph graph = fake_graph(5);
  DeviceProgram program;
  program.infos = {{graph.nodes[1].name, "conv_lookup", ""}, {graph.nodes[2].name, "merged", ""}};
  program.layer_times = {0.1, 0, 0.2, 0.3};
  const BenchResult r = bench_program(program, graph, {2, 0.01, true});
  EXPECT_DOUBLE_EQ(r.layers[1].milliseconds, 0.2);
  EXPECT_DOUBLE_EQ(r.layers[2].milliseconds, 0);
  EXPECT_DOUBLE_EQ(r.layers[3].milliseconds, 0.3);
}

// A convolution, its pool and a linear that one kernel computed: work is counted once, and what lies between is none.
TEST(Bench, NodesThatRanTogetherCountAsTheFirst) {
  Int8Graph graph = fake_graph(5);
  graph.nodes[1].weight.resize(3 * 9);
  graph.nodes[3].weight.resize(5 * 2);
  DeviceProgram program;
  program.infos = {{graph.nodes[1].name, "conv_pool_linear", ""},
                   {graph.nodes[2].name, "merged", ""},
                   {graph.nodes[3].name, "merged", ""}};
  program.layer_times = {0.1, 0, 0, 0.3};
  const auto bytes = [&](int residual) {
    graph.nodes[3].inputs.resize(1);
    if (residual >= 0) graph.nodes[3].inputs.push_back(residual);
    const BenchResult r = bench_program(program, graph, {2, 0.01, true, ChipRates{2e3, 1e12}});
    EXPECT_DOUBLE_EQ(r.layers[1].milliseconds, 0.3);
    EXPECT_EQ(r.layers[1].multiply_adds, 2 * (12 * 9 + 10));
    EXPECT_DOUBLE_EQ(r.layers[1].floor_ms, r.layers[1].bytes / 2.0);
    for (const int merged : {2, 3}) {
      const LayerTime& layer = r.layers[merged];
      EXPECT_EQ(std::tuple(layer.milliseconds, layer.multiply_adds, layer.bytes, layer.floor_ms),
                std::tuple(0.0, 0, 0, 0.0));
    }
    return r.layers[1].bytes;
  };
  EXPECT_EQ(bytes(-1), 2 * (4 + 5 * 4) + 27 + 10);
  EXPECT_EQ(bytes(0), 2 * (4 + 5 * 4) + 27 + 10) << "a residual that the first node reads anyway";
  graph.outputs.push_back(1);
  EXPECT_EQ(bytes(-1), 2 * (4 + 12 + 5 * 4) + 27 + 10) << "what else is read is written, and not read again here";
}

// A pool and a linear that one kernel computed: a flatten that is no copy stands between them.
TEST(Bench, ATimeBehindAnAliasCountsAtTheFirst) {
  Int8Graph graph = fake_graph(5);
  graph.nodes[3].weight.resize(5 * 2);
  DeviceProgram program;
  program.infos = {{graph.nodes[1].name, "pool_linear", ""},
                   {graph.nodes[2].name, "alias", ""},
                   {graph.nodes[3].name, "merged", ""}};
  program.layer_times = {0.1, 0, 0, 0.3};
  const BenchResult r = bench_program(program, graph, {2, 0.01, true});
  EXPECT_DOUBLE_EQ(r.layers[1].milliseconds, 0.3);
  EXPECT_DOUBLE_EQ(r.layers[2].milliseconds, 0);
  EXPECT_DOUBLE_EQ(r.layers[3].milliseconds, 0);
}

TEST(Bench, RefusesNonsense) {
  const Int8Graph graph = fake_graph(5);
  FakeProgram program(graph);
  EXPECT_THROW(bench_program(program, graph, {0, 1, false}), Error);
  EXPECT_THROW(bench_program(program, graph, {1, -1, false}), Error);
}

}  // namespace
}  // namespace octet
