// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <tuple>

#include "src/bench/bench.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"

namespace octet {
namespace {

Int8Graph network(const char* model) {
  return random_int8_graph(build_model({.name = model, .input = {3, 224, 224}, .classes = 1000}),
                           {.activation = ActivationScheme::symmetric_s8}, 1);
}

/// As CUDA describes it: clocks in MHz, the memory's bus in bits.
GpuStatus gpu(const std::string& name, int capability, int multiprocessors, int clock, int memory_clock, int bus) {
  GpuStatus status;
  status.usable = true;
  status.name = name;
  status.capability = capability;
  status.multiprocessors = multiprocessors;
  status.clock_khz = 1000 * clock, status.memory_clock_khz = 1000 * memory_clock, status.memory_bus_bits = bus;
  return status;
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
  const ChipRates rates = chip_rates(gpu("NVIDIA H200", 90, 132, 1'980, 3'201, 6'144)).value();
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
}

// What CUDA tells of GPUs, beside the peaks of NVIDIA's data sheets: TB/s, and int8 TOPS without sparsity. Hopper's and
// Blackwell's data sheets count tensor cores at a lower clock than the highest (H100: 1,830 of 1,980 MHz).
TEST(ChipRates, ArePeaksByTheGpusOwnNumbers) {
  struct Published {
    GpuStatus status;
    double terabytes, tops;
  };
  Published gpus[] = {
      {gpu("NVIDIA A100-SXM4-80GB", 80, 108, 1'410, 1'593, 5'120), 2.039, 624},
      {gpu("NVIDIA A100-SXM4-40GB", 80, 108, 1'410, 1'215, 5'120), 1.555, 624},
      {gpu("NVIDIA GeForce RTX 3090", 86, 82, 1'695, 9'751, 384), 0.936, 284},
      {gpu("NVIDIA L4", 89, 58, 2'040, 6'251, 192), 0.3, 242.5},
      {gpu("Orin", 87, 16, 1'300, 1'300, 256), 0.2048, 85},  // AGX Orin 64GB
      {gpu("Orin", 87, 8, 918, 918, 128), 0.1024, 30},       // Orin NX 16GB, whose 100 TOPS count two DLAs
      {gpu("NVIDIA GeForce RTX 4090", 89, 128, 2'520, 10'501, 384), 1.008, 660.6},
      {gpu("NVIDIA H100 80GB HBM3", 90, 132, 1'980, 2'619, 5'120), 3.35, 1'979},
      {gpu("NVIDIA H100 PCIe", 90, 114, 1'755, 1'593, 5'120), 2.039, 1'513},
      {gpu("NVIDIA GeForce RTX 5090", 120, 170, 2'407, 14'001, 512), 1.792, 838},
  };
  gpus[4].status.integrated = gpus[5].status.integrated = true;
  for (const Published& of : gpus) {
    SCOPED_TRACE(of.status.name);
    const std::optional<ChipRates> rates = chip_rates(of.status);
    ASSERT_TRUE(rates.has_value());
    EXPECT_FALSE(rates->measured);
    EXPECT_NEAR(rates->bytes_per_second, of.terabytes * 1e12, 0.003 * of.terabytes * 1e12);
    const double share = rates->operations_per_second / (of.tops * 1e12);
    EXPECT_GT(share, 0.997);
    EXPECT_LT(share, of.status.capability == 90 ? 1.085 : 1.003);
  }
  EXPECT_EQ(describe(chip_rates(gpus[7].status)), "floors: at 3.35 TB/s and 2141 TOPS, the peaks of such a GPU");
}

TEST(ChipRates, OfAnH200AreThoseThatWereMeasured) {
  const GpuStatus h200 = gpu("NVIDIA H200", 90, 132, 1'980, 3'201, 6'144);
  const std::optional<ChipRates> rates = chip_rates(h200);
  ASSERT_TRUE(rates.has_value());
  EXPECT_EQ(std::tuple(rates->bytes_per_second, rates->operations_per_second, rates->measured),
            std::tuple(4.28e12, 1.6e15, true));
  EXPECT_EQ(describe(rates),
            "floors: at 4.28 TB/s and 1600 TOPS, measured on such a GPU: a large copy, and good kernels");
  // A part of one (MIG) has not been measured.
  EXPECT_FALSE(chip_rates(gpu("NVIDIA H200 MIG 1g.18gb", 90, 16, 1'980, 3'201, 768))->measured);
}

TEST(ChipRates, AreNoneWhereTheyAreNotKnown) {
  EXPECT_FALSE(chip_rates(gpu("NVIDIA B300", 103, 148, 1'920, 3'996, 8'192)).has_value());
  EXPECT_FALSE(chip_rates(gpu("NVIDIA L4", 89, 58, 2'040, 0, 192)).has_value()) << "no clock of its memory";
  GpuStatus thor = gpu("NVIDIA Thor", 110, 20, 1'575, 1'575, 256);
  thor.integrated = true;
  EXPECT_FALSE(chip_rates(thor).has_value()) << "the clock told is not the memory's";
  EXPECT_FALSE(chip_rates(GpuStatus{}).has_value());
  EXPECT_EQ(describe(std::nullopt), "no floors: the peaks of this GPU are not known");
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
