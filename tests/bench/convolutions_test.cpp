#include <gtest/gtest.h>

#include "src/bench/conv_floor.h"
#include "src/bench/convolutions.h"
#include "src/bench/layer_bars.h"
#include "src/graph/zoo.h"
#include "src/quant/convert.h"

namespace octet {
namespace {

Int8Graph network(const char* model) {
  return random_int8_graph(build_model({.name = model, .input = {3, 224, 224}, .classes = 1000}),
                           {.activation = ActivationScheme::symmetric_s8}, 1);
}

int count_of(const std::vector<DistinctConv>& convs, const std::string& description) {
  for (const DistinctConv& conv : convs) {
    if (conv.description == description) return conv.count;
  }
  return 0;
}

TEST(BenchLayers, FindsResNet50sDistinctConvolutions) {
  const std::vector<DistinctConv> convs = distinct_convolutions(network("resnet50"));
  int all = 0;
  for (const DistinctConv& conv : convs) all += conv.count;
  EXPECT_EQ(all, 53);  // 1 + 3 * (3 + 4 + 6 + 3) + 4 shortcuts
  EXPECT_EQ(count_of(convs, "3, 224x224 -> 64, 7x7/2"), 1);
  EXPECT_EQ(count_of(convs, "64, 56x56 -> 64, 3x3"), 3);
  EXPECT_EQ(count_of(convs, "64, 56x56 -> 256, 1x1 + residual"), 3);
  EXPECT_EQ(count_of(convs, "64, 56x56 -> 256, 1x1, no ReLU"), 1);  // a shortcut
  EXPECT_EQ(count_of(convs, "256, 14x14 -> 256, 3x3"), 5);
}

// By hand, for a H200: 4.28 TB/s, 1,600 TOPS.
TEST(BenchLayers, FloorIsTheLargerOfBytesAndOperations) {
  const Int8Graph graph = network("resnet50");
  const ChipRates rates = chip_rates("NVIDIA H200, cuDNN 9.19.0").value();
  const auto floor_of = [&](const std::string& description) {
    for (const DistinctConv& conv : distinct_convolutions(graph)) {
      if (conv.description == description) return floor_milliseconds(graph, conv.node, 128, rates);
    }
    return 0.0;
  };
  constexpr double kPixels = 128 * 56 * 56;
  EXPECT_NEAR(floor_of("64, 56x56 -> 256, 1x1 + residual"), 1e3 * (kPixels * (64 + 256 + 256) + 64 * 256) / 4.28e12,
              1e-9);
  EXPECT_NEAR(floor_of("64, 56x56 -> 64, 3x3"), 1e3 * 2 * kPixels * 64 * 64 * 9 / 1.6e15, 1e-9);
  // A 1x1 window of stride 2 reads a quarter of its input.
  EXPECT_NEAR(floor_of("256, 56x56 -> 512, 1x1/2, no ReLU"),
              1e3 * (kPixels * 256 / 4 + kPixels / 4 * 512 + 256 * 512) / 4.28e12, 1e-9);
  EXPECT_FALSE(chip_rates("NVIDIA L4, cuDNN 9.19.0").has_value());
}

TEST(BenchLayers, NamesDepthwise) {
  EXPECT_EQ(count_of(distinct_convolutions(network("mobilenet_v2")), "32, 112x112 -> 32, 3x3, depthwise"), 1);
}

ConvRow row(int count, double cuda, double int8, double fp16) {
  ConvRow r;
  r.conv = {1, count, std::to_string(count) + " times"};
  r.multiply_adds = 500'000'000;
  r.bytes = {2'000'000, 2'000'000, 4'000'000};
  r.times[kCudaInt8] = {cuda, "mma", ""};
  r.times[kCudnnInt8] = {int8, "eng4", int8 > 0 ? "" : "C=3"};
  r.times[kCudnnFp16] = {fp16, "eng4", ""};
  r.floor_ms = 0.2;
  return r;
}

TEST(BenchLayers, WeighsWhatAllContestantsRan) {
  ConvBench bench{"net", "a GPU", 128, {kCudaInt8, kCudnnInt8, kCudnnFp16}};
  add_row(bench, row(1, 5, 0, 7));  // not comparable
  add_row(bench, row(2, 0.5, 1, 2));
  add_row(bench, row(3, 1, 0.25, 4));
  EXPECT_EQ(bench.compared, 2);
  EXPECT_DOUBLE_EQ(bench.weighted[kCudaInt8], 2 * 0.5 + 3 * 1);
  EXPECT_DOUBLE_EQ(bench.weighted[kCudnnInt8], 2 * 1 + 3 * 0.25);
  EXPECT_DOUBLE_EQ(bench.weighted[kCudnnFp16], 2 * 2 + 3 * 4);
  const std::string text = describe(bench);
  EXPECT_NE(text.find("cudnn int8 does not run 1 times: C=3"), std::string::npos) << text;
  EXPECT_NE(text.find("over the 2 of 3 that all run: cuda int8 4.000 ms, cudnn int8 2.750 ms, cudnn fp16 16.000 ms"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("cuda takes 1.45 of cudnn int8's time, 4.00 of the floor's"), std::string::npos) << text;
  // 2 * 5e8 operations in 0.5 ms are 2 TOPS; 2 MB in 0.5 ms are 4 GB/s.
  EXPECT_NE(text.find("0.5000   2.00   4.00"), std::string::npos) << text;
}

TEST(BenchLayers, CutlassCountsWhereItIsMeasured) {
  ConvBench bench{"net", "a GPU", 128, {kCudaInt8, kCudnnInt8, kCudnnFp16, kCutlassInt8}};
  add_row(bench, row(1, 5, 6, 7));  // not comparable: CUTLASS does not run it
  ConvRow both = row(2, 0.5, 1, 2);
  both.times[kCutlassInt8] = {0.75, "gemm", ""};
  add_row(bench, both);
  EXPECT_EQ(bench.compared, 1);
  EXPECT_DOUBLE_EQ(bench.weighted[kCutlassInt8], 2 * 0.75);
  EXPECT_NE(describe(bench).find("cudnn fp16 4.000 ms, cutlass int8 1.500 ms;"), std::string::npos) << describe(bench);
}

TEST(BenchLayers, ChartIsAFileOfItsOwn) {
  const std::string svg = svg_layer_bars(
      "net, batch 1", {"first & last", "second"},
      {{"cuda", series_colour(0), {0.5, 0.25}, {"mma", "mma"}}, {"cudnn", series_colour(1), {1, 0}, {"eng4", ""}}});
  EXPECT_NE(svg.find("xmlns=\"http://www.w3.org/2000/svg\""), std::string::npos);
  EXPECT_NE(svg.find("first &amp; last"), std::string::npos);
  EXPECT_NE(svg.find(">net, batch 1<"), std::string::npos) << "who sees the file does not see its title";
  EXPECT_NE(svg.find("1.00 cudnn"), std::string::npos);
  EXPECT_EQ(svg.find("second, cudnn"), std::string::npos) << "a layer that cudnn does not have got a bar";
}

}  // namespace
}  // namespace octet
