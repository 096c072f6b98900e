// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/eval/compare.h"
#include "tests/eval/fakes.h"

namespace octet {
namespace {

using testing::all_of;
using testing::fake_graph;
using testing::FakeDataset;
using testing::FakeProgram;

constexpr int kClasses = 5, kImages = 11, kBatch = 4;
constexpr int kConv = 1, kPool = 2, kFc = 3;

class Compare : public ::testing::Test {
 protected:
  void SetUp() override { set_verbosity(Verbosity::quiet); }
  Comparison run() {
    return compare(graph, {{"qat_graph", &first}, {"cpu", &second}, {"reference", &third}}, all_of(dataset), kBatch);
  }
  void expect_refusal(const std::string& message) {
    try {
      run();
      FAIL() << "expected: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::promise);
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
  const Int8Graph graph = fake_graph(kClasses);
  const FakeDataset dataset{kImages, kClasses};
  FakeProgram first{graph}, second{graph}, third{graph};
};

TEST_F(Compare, EqualProgramsAreIdentical) {
  const Comparison c = run();
  EXPECT_TRUE(c.identical());
  EXPECT_EQ(c.images, kImages);
  ASSERT_EQ(c.layers.size(), 4u);
  const long codes[] = {4 * kImages, 12 * kImages, 2 * kImages, kClasses * kImages};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(c.layers[i].codes, codes[i]) << i;
  EXPECT_EQ(c.codes(), (4 + 12 + 2 + kClasses) * kImages);
  EXPECT_EQ(c.first_differing_layer(), -1);
  EXPECT_EQ(verdict(c), "identical: 0 of 253 codes differ in 3 programs over 11 images");
  EXPECT_EQ(first.batches, (std::vector<int>{4, 4, 3}));
  EXPECT_EQ(third.batches, first.batches);
}

/// What a program was compared on is what there is: over one image, where nothing is divided away, and over many.
TEST_F(Compare, AProgramThatSeesAllIsComparedOnEveryCode) {
  for (const int images : {1, kImages}) {
    EvaluationSet set = all_of(dataset);
    set.indices.resize(images);
    const Comparison c = compare(graph, {{"qat_graph", &first}, {"cpu", &second}, {"cudnn", &third, 0, false}}, set, 4);
    for (const size_t program : {0, 1}) EXPECT_EQ(c.codes(program), (4 + 12 + 2 + kClasses) * images);
    EXPECT_NE(verdict(c).find("; cudnn promises no equal codes: 0 of " + std::to_string(c.codes()) + " codes"),
              std::string::npos)
        << verdict(c);
  }
}

/// 1.2 MB of codes of the first layer, which threads compare in pieces of a megabyte.
TEST_F(Compare, DifferencesAreCountedInAllPiecesOfALargeOutput) {
  constexpr int kMany = 100'000;
  const FakeDataset many{kMany, kClasses};
  second.change = [](int node, long image, uint8_t* codes) {
    if (node == kConv && image < 2) codes[0] ^= 1;
    if (node == kConv && image >= kMany - 3) codes[11] ^= 2;
  };
  const Comparison c = compare(graph, {{"qat_graph", &first}, {"cpu", &second}}, all_of(many), kMany);
  EXPECT_EQ(c.images, kMany);
  EXPECT_EQ(c.layers[kConv].differing, std::vector<long>{5});
  EXPECT_EQ(c.layers[kConv].largest_lsb, std::vector<int>{2});
  EXPECT_EQ(c.differing_codes(), 5);
}

TEST_F(Compare, WrongConstantsBreakThePromiseThoughNoCodeDiffers) {
  Comparison c = run();
  EXPECT_NE(describe(c).find("\nconstants: not derived again"), std::string::npos) << describe(c);
  c.constants = {.derived = true, .multipliers = 1200, .table_entries = 512, .weights = 9, .edges = 6};
  EXPECT_TRUE(c.identical());
  EXPECT_NE(describe(c).find("\nconstants: 1,200 multipliers and biases, 512 table entries, 9 weights and 6 bounds and "
                             "scales of edges derived again in double from what was trained: none is wrong\n"),
            std::string::npos)
      << describe(c);
  c.constants.wrong = 3;
  c.constants.first = {{"layer1.0.conv1", "bias", 2, 0.5, 0.25}, {"fc", "scale", -1, 1, 2}};
  EXPECT_FALSE(c.identical());
  EXPECT_TRUE(c.broken());
  EXPECT_EQ(verdict(c),
            "BROKEN: 3 of 1,727 constants do not follow from what was trained, first at layer1.0.conv1; codes: "
            "identical: 0 of 253 codes differ in 3 programs over 11 images");
  EXPECT_EQ(describe(c.constants),
            "constants: 3 of 1,727 do not follow from what was trained: 'layer1.0.conv1': bias 2 is 0.5, the trained "
            "weights give 0.25; 'fc': scale is 1, the trained weights give 2");
  c.exact = {false, false};  // nothing promised equal codes: wrong constants are wrong all the same
  EXPECT_TRUE(c.broken());
}

TEST_F(Compare, ASlowProgramSeesTheFirstImagesAndTheOthersAll) {
  const auto change_image = [](long at) {
    return [at](int node, long image, uint8_t* codes) {
      if (node == kConv && image == at) codes[5] = static_cast<uint8_t>(codes[5] + 1);
    };
  };
  third.change = change_image(6);  // the first one it does not see
  const Comparison c =
      compare(graph, {{"qat_graph", &first}, {"cpu", &second}, {"reference", &third, 6}}, all_of(dataset), kBatch);
  EXPECT_TRUE(c.identical());
  EXPECT_EQ(c.images, kImages);
  EXPECT_EQ(c.program_images, (std::vector<long>{kImages, 6}));
  EXPECT_EQ(third.batches, (std::vector<int>{4, 2}));
  EXPECT_EQ(verdict(c), "identical: 0 of 253 codes differ in 3 programs over 11 images; reference: over the first 6");

  FakeProgram a{graph}, b{graph}, slow{graph};
  b.change = change_image(9);
  slow.change = change_image(5);  // the last one it sees
  const Comparison broken =
      compare(graph, {{"qat_graph", &a}, {"cpu", &b}, {"reference", &slow, 6}}, all_of(dataset), kBatch);
  EXPECT_EQ(broken.layers[kConv].differing, (std::vector<long>{1, 1}));
}

/// What a program gives is compared, not what its tap shows; and no output is taken for classes.
TEST_F(Compare, EveryOneOfSeveralOutputsIsHeldAgainstItsOwn) {
  Int8Graph several = graph;
  several.outputs = {kFc, kPool, kConv};
  const auto differing = [&](size_t index, size_t byte) {
    FakeProgram good(several), bad(several);
    bad.change_output = [&](size_t i, void* values) {
      if (i == index) static_cast<uint8_t*>(values)[byte] ^= 1;  // of each batch's first image
    };
    const Comparison c = compare(several, {{"cpu", &good}, {"reference", &bad}}, all_of(dataset), kBatch);
    EXPECT_FALSE(c.identical());
    EXPECT_EQ(c.differing_predictions, std::vector<long>{0});
    EXPECT_EQ(c.codes(), (4 + 12 + 2 + kClasses) * kImages);
    std::vector<long> layers;
    for (const LayerDifference& layer : c.layers) layers.push_back(layer.differing[0]);
    return layers;
  };
  EXPECT_EQ(differing(0, 2), (std::vector<long>{0, 0, 0, 3}));
  EXPECT_EQ(differing(1, 1), (std::vector<long>{0, 0, 3, 0}));
  EXPECT_EQ(differing(2, 11), (std::vector<long>{0, 3, 0, 0}));
  FakeProgram one(several), other(several);
  EXPECT_TRUE(compare(several, {{"cpu", &one}, {"reference", &other}}, all_of(dataset), kBatch).identical());
}

TEST_F(Compare, OneCodeOfOneImageIsFound) {
  second.change = [](int node, long image, uint8_t* codes) {
    if (node == kConv && image == 9) codes[5] = static_cast<uint8_t>(codes[5] + 1);
  };
  const Comparison c = run();
  EXPECT_FALSE(c.identical());
  EXPECT_EQ(c.first_differing_layer(), kConv);
  EXPECT_EQ(c.layers[kConv].differing, (std::vector<long>{1, 0}));
  EXPECT_EQ(c.layers[kConv].largest_lsb, (std::vector<int>{1, 0}));
  EXPECT_EQ(c.differing_codes(), 1);
  EXPECT_EQ(c.differing_predictions, (std::vector<long>{0, 0}));
  EXPECT_EQ(verdict(c), "BROKEN: first at layer1.0.conv1: cpu differs from qat_graph in 1 code, largest 1 LSB");
}

TEST_F(Compare, AnInexactProgramIsCountedAndBreaksNothing) {
  third.change = [](int node, long image, uint8_t* codes) {
    if (node == kConv) codes[5] = static_cast<uint8_t>(codes[5] + (image == 9 ? 3 : 1));
  };
  const auto compared = [&](bool second_exact, bool third_exact) {
    const std::vector<NamedProgram> programs = {
        {"qat_graph", &first}, {"cpu", &second, 0, second_exact}, {"cudnn", &third, 0, third_exact}};
    return compare(graph, programs, all_of(dataset), kBatch);
  };
  const Comparison c = compared(true, false);
  EXPECT_TRUE(c.identical());
  EXPECT_EQ(c.exact, (std::vector<bool>{true, false}));
  EXPECT_EQ(c.first_differing_layer(), -1);
  EXPECT_EQ(c.layers[kConv].differing, (std::vector<long>{0, kImages}));
  EXPECT_EQ(c.differing_codes(), 0);
  EXPECT_EQ(c.differing_codes(1), kImages);
  EXPECT_EQ(verdict(c),
            "identical: 0 of 253 codes differ in 2 programs over 11 images; cudnn promises no equal codes: 11 of 253 "
            "codes and logits differ (4.348 %), codes by at most 3 LSB, and 0 predictions");
  EXPECT_NE(describe(c).find("cudnn (inexact)"), std::string::npos);
  EXPECT_EQ(describe(c).find("first >>"), std::string::npos);

  EXPECT_TRUE(c.promised());
  EXPECT_FALSE(c.broken());
  EXPECT_FALSE(compared(true, true).identical());
  EXPECT_TRUE(compared(true, true).broken());
  const Comparison nothing = compared(false, false);
  EXPECT_FALSE(nothing.promised() || nothing.identical() || nothing.broken());
  EXPECT_TRUE(verdict(nothing).starts_with("nothing promised equal codes; cpu promises no equal codes: 0 of 253"));
  second.change = third.change;
  EXPECT_FALSE(compared(true, false).identical());
}

TEST_F(Compare, CodesOfAProgramThatSawFewerImagesAreCountedOverThese) {
  third.change = [](int node, long, uint8_t* codes) {
    if (node == kConv) codes[5] = static_cast<uint8_t>(codes[5] + 1);
  };
  const Comparison c = compare(graph, {{"qat_graph", &first}, {"cpu", &second}, {"simulation", &third, 6, false}},
                               all_of(dataset), kBatch);
  EXPECT_EQ(c.codes(0), 253);
  EXPECT_EQ(c.codes(1), 6 * 23);
  EXPECT_NE(verdict(c).find("simulation promises no equal codes: 6 of 138 codes and logits differ (4.348 %)"),
            std::string::npos)
      << verdict(c);
}

/// Another runtime has no value for some nodes.
TEST_F(Compare, WhatAProgramDoesNotShowIsNotCompared) {
  third.hidden_node = kConv;
  third.change = [](int node, long, uint8_t* codes) {
    if (node == kPool) codes[0] = static_cast<uint8_t>(codes[0] + 1);
  };
  third.change_logits = [](long, float* logits) { logits[0] += 100; };
  std::vector<bool> shown = {true, false, true, false};  // nor the logits
  const auto compared = [&] {
    return compare(graph, {{"cpu", &first}, {"reference", &second}, {"onnxruntime", &third, 0, false, shown}},
                   all_of(dataset), kBatch);
  };
  const Comparison c = compared();
  EXPECT_TRUE(c.identical());
  EXPECT_EQ(c.codes(0), 253);
  EXPECT_EQ(c.codes(1), (4 + 2) * kImages);
  EXPECT_EQ(c.layers[kPool].differing, (std::vector<long>{0, kImages}));
  EXPECT_EQ(c.layers[kFc].differing, (std::vector<long>{0, 0}));
  EXPECT_EQ(c.differing_predictions, (std::vector<long>{0, 0}));
  EXPECT_NE(verdict(c).find("onnxruntime promises no equal codes: 11 of 66 codes and logits differ"), std::string::npos)
      << verdict(c);
  EXPECT_NE(describe(c).find("not shown"), std::string::npos);
  shown[kConv] = true;
  try {
    compared();
    FAIL() << "expected a complaint: it says that it shows the node";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("program onnxruntime never showed"), std::string::npos) << error.what();
  }
}

TEST_F(Compare, LsbRespectsTheSign) {
  // 0x7f and 0x80 are 127 and -128 as int8 (255 apart), 127 and 128 as uint8 (1 apart).
  const auto set_to = [](uint8_t value) {
    return [value](int node, long image, uint8_t* codes) {
      if (image == 0 && (node == kConv || node == kPool)) codes[0] = value;
    };
  };
  first.change = third.change = set_to(0x7f);
  second.change = set_to(0x80);
  const Comparison c = run();
  EXPECT_EQ(c.layers[kConv].largest_lsb, (std::vector<int>{255, 0}));
  EXPECT_EQ(c.layers[kPool].largest_lsb, (std::vector<int>{1, 0}));
}

TEST_F(Compare, LogitsAreComparedByBits) {
  // Image 0 has logits 0, 1, 2, 3, 4: minus zero equals zero as a number, not as bits.
  second.change_logits = [](long image, float* logits) {
    if (image == 0) logits[0] = -0.0f;
  };
  third.change_logits = [](long image, float* logits) {
    if (image == 1) logits[2] = std::nextafter(std::nextafter(logits[2], 100.0f), 100.0f);
    if (image == 2) logits[0] = 1e30f, logits[1] = std::numeric_limits<float>::quiet_NaN();
  };
  const Comparison c = run();
  EXPECT_EQ(c.first_differing_layer(), kFc);
  EXPECT_EQ(c.layers[kFc].differing, (std::vector<long>{1, 3}));
  EXPECT_EQ(c.layers[kFc].largest_lsb[0], 1);
  EXPECT_GT(c.layers[kFc].largest_lsb[1], 1000000);
  EXPECT_EQ(c.differing_predictions, (std::vector<long>{0, 1}));
  EXPECT_NE(verdict(c).find("BROKEN: first at fc: cpu differs from qat_graph in 1 logit, largest 1 ULP; reference"),
            std::string::npos)
      << verdict(c);
}

TEST_F(Compare, UlpCountsTheFloatsBetween) {
  second.change_logits = [](long image, float* logits) {
    if (image == 1) logits[2] = std::nextafter(std::nextafter(logits[2], 100.0f), 100.0f);
  };
  EXPECT_EQ(run().layers[kFc].largest_lsb, (std::vector<int>{2, 0}));
}

/// Each image's values are 0 to 4 in some order: a signal of 30.
TEST_F(Compare, FloatsOfAProgramWithoutAPromiseAreComparedInDecibels) {
  second.change_logits = [](long image, float* logits) {
    if (image == 0) logits[1] += 0.5f;
  };
  const Comparison c = compare(graph, {{"cpu", &first}, {"other", &second, 0, false}}, all_of(dataset), kBatch);
  EXPECT_DOUBLE_EQ(c.layers[kFc].signal[0], 30 * kImages);
  EXPECT_DOUBLE_EQ(c.layers[kFc].noise[0], 0.25);
  EXPECT_NE(describe(c).find("  31.2 dB\n  predictions  "), std::string::npos) << describe(c);
  EXPECT_NE(verdict(c).find(" codes and logits differ (0.395 %), codes by at most 0 LSB, and 0 predictions"),
            std::string::npos)
      << verdict(c);
}

TEST_F(Compare, SeveralOutputsArePredictionsOfNothing) {
  Int8Graph several = graph;
  several.outputs.push_back(kConv);
  FakeProgram a{several}, b{several};
  b.change_logits = [](long, float* logits) { logits[1] += 3; };
  const Comparison c = compare(several, {{"cpu", &a}, {"other", &b, 0, false}}, all_of(dataset), kBatch);
  EXPECT_EQ(c.answers, 0);
  EXPECT_EQ(describe(c).find("prediction"), std::string::npos) << describe(c);
  EXPECT_NE(verdict(c).find(" codes and outputs differ (4.348 %), codes by at most 0 LSB"), std::string::npos)
      << verdict(c);
}

TEST_F(Compare, EveryNodeMustBeShown) {
  second.hidden_node = kConv;
  expect_refusal("program cpu never showed 'layer1.0.conv1'");
  second.hidden_node = -1;
  third.doubled_node = kPool;
  expect_refusal("program reference showed 'pool' twice");
  third.doubled_node = -1;
  first.short_node = kPool;
  expect_refusal("program qat_graph showed 7 bytes of 'pool', expected 8");
}

TEST_F(Compare, NothingComparedIsNotIdentical) {
  EXPECT_FALSE(Comparison{}.identical());
  EXPECT_EQ(verdict(Comparison{}), "nothing was compared");
  EXPECT_THROW(compare(graph, {{"cpu", &first}}, all_of(dataset), kBatch), Error);
  EvaluationSet nothing = all_of(dataset);
  nothing.indices.clear();
  EXPECT_THROW(compare(graph, {{"a", &first}, {"b", &second}}, nothing, kBatch), Error);
}

TEST_F(Compare, TableMarksTheFirstDifference) {
  third.change = [](int node, long image, uint8_t* codes) {
    if (node >= kConv) codes[0] = static_cast<uint8_t>(codes[0] ^ 2);
  };
  EXPECT_EQ(describe(run()),
            "codes that differ from qat_graph, layer by layer\n"
            "\n"
            "          layer           codes  cpu  largest  reference  largest\n"
            "-----------------------------------------------------------------\n"
            "          input              44    0                   0\n"
            "first >>  layer1.0.conv1    132    0                  11  2 LSB\n"
            "!         pool               22    0                  11  2 LSB\n"
            "          fc                 55    0                   0\n"
            "          predictions        11    0                   0\n"
            "\n"
            "constants: not derived again from what was trained; octet compare RUN does, in a build with training\n"
            "BROKEN: first at layer1.0.conv1: reference differs from qat_graph in 11 codes, largest 2 LSB\n");
}

}  // namespace
}  // namespace octet
