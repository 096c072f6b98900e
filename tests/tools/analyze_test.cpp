// octet analyze, and a repair after training by its keys.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/tools/program.h"
#include "tests/tools/tiny_recipe.h"

namespace octet::test {
namespace {

class Analyze : public ToolTest {
 protected:
  void SetUp() override { write("tiny.yaml", kTinyRecipe); }
  Answer train(std::vector<std::string> more) const {
    std::vector<std::string> words = {"train", path("tiny.yaml"), "--out", path("run"), "--device", "cpu"};
    words.insert(words.end(), more.begin(), more.end());
    return octet(words);
  }
  void expect_exported(const std::string& rounding) const {
    const Answer trained = train({"--set", "qat.epochs=0", "--set", "quant.weight_bits=3", "--set",
                                  "calibrate.rounding=" + rounding, "--set", "calibrate.rounding_steps=50"});
    ASSERT_EQ(trained.code, 0) << trained.err;
    expect_part(trained.err, rounding + ": ");
    expect_part(trained.err, "of the codes moved");
    EXPECT_EQ(octet({"compare", path("run"), "--quiet"}).code, 0);
  }
};

TEST_F(Analyze, TheLayerOfTwoBitsStandsFirst) {
  const Answer trained = train({"--set", "qat.epochs=0", "--set", "quant.layers=[{match: conv2, weight_bits: 2}]"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Answer answer = octet({"analyze", path("run"), "--json", "--quiet", "--images", "20", "--channels", "2"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const auto document = nlohmann::json::parse(answer.out);
  EXPECT_EQ(document.at("validation_images"), 20);
  const auto& layers = document.at("layers");
  const auto conv2 =
      std::find_if(layers.begin(), layers.end(), [](const auto& layer) { return layer.at("layer") == "conv2"; });
  ASSERT_NE(conv2, layers.end()) << answer.out;
  EXPECT_EQ(conv2->at("weight_bits"), 2);
  EXPECT_LE(conv2->at("worst_channels").size(), 2u);
  for (const auto& layer : layers) {
    if (layer.at("layer") == "conv2" || layer.at("alone").at("sqnr_db").is_null()) continue;
    EXPECT_LT(conv2->at("alone").at("sqnr_db"), layer.at("alone").at("sqnr_db")) << layer.at("layer");
    EXPECT_GT(conv2->at("all_but").at("sqnr_db"), layer.at("all_but").at("sqnr_db")) << layer.at("layer");
  }
  const Answer table = octet({"analyze", path("run"), "--quiet", "--images", "20"});
  ASSERT_EQ(table.code, 0) << table.err;
  const size_t first = table.out.find("\nconv2 ");
  ASSERT_NE(first, std::string::npos) << table.out;
  EXPECT_LT(first, table.out.find("\nconv1 "));
  expect_part(table.out, "of 20 validation images");
}

TEST_F(Analyze, WhatCannotBeAnalyzedIsRefused) {
  expect_refusal(octet({"analyze", path("tiny.yaml")}), 2,
                 {"tiny.yaml", "needs trained weights", "--set model.weights="});
  expect_refusal(octet({"analyze", path("none")}), 3, {"none"});
  EXPECT_EQ(octet({"analyze", path("tiny.yaml"), "--images", "0"}).code, 2);
}

TEST_F(Analyze, ARoundedNetworkIsExportedAsItIs) { expect_exported("adaround"); }

TEST_F(Analyze, ANetworkRoundedByBlocksIsExportedAsItIs) { expect_exported("block"); }

}  // namespace
}  // namespace octet::test
