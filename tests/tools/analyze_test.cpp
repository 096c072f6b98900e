// SPDX-License-Identifier: Apache-2.0
// octet analyze, and a repair after training by its keys.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/base/files.h"
#include "tests/report/markup.h"
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

TEST_F(Analyze, ThePageHasEachLayerInEachChartAndInTheTable) {
  ASSERT_EQ(train({"--set", "qat.epochs=0", "--set", "quant.layers=[{match: conv2, weight_bits: 2}]"}).code, 0);
  const Answer answer =
      octet({"analyze", path("run"), "--json", "--quiet", "--images", "20", "--html", path("p.html")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const std::string page = read_file(path("p.html"));
  EXPECT_EQ(testing::parse_markup(page).error, "");
  const auto document = nlohmann::json::parse(answer.out);
  for (const auto& layer : document.at("layers")) {
    const auto name = layer.at("layer").get<std::string>();
    for (const auto& db :
         {layer.at("alone").at("sqnr_db"), layer.at("all_but").at("sqnr_db"), layer.at("output_sqnr_db")})
      expect_part(page, fmt::format("<title>{} ({}): {}<", name, layer.at("op").get<std::string>(),
                                    db.is_null() ? "lossless" : fmt::format("{:.1f} dB", db.get<double>())));
    EXPECT_EQ(testing::occurrences(page, fmt::format("data-label=\"layer\" class=\"left\"><span>{}</span>", name)), 1);
  }
  const size_t gains = page.find("SQNR of the logits by layer", page.find("SQNR of the logits by layer") + 1);
  ASSERT_NE(gains, std::string::npos);
  for (const size_t chart : {page.find("<svg"), gains})  // costs the most alone, gives back the most
    EXPECT_LT(page.find("<title>conv2 (", chart), page.find("<title>conv1 (", chart));
  expect_part(page, "<td data-label=\"weights\">2</td>");
  expect_part(page, fmt::format("<b>{:.1f} dB</b>", document.at("all").at("sqnr_db").get<double>()));
}

TEST_F(Analyze, APageThatCannotBeWrittenIsRefused) {
  expect_refusal(octet({"analyze", path("norun"), "--html", path("nowhere/p.html")}), 3,
                 {"nowhere/p.html", "no folder"});
  ASSERT_EQ(train({"--set", "qat.epochs=0"}).code, 0);
  expect_refusal(octet({"analyze", path("run"), "--html", path("run")}), 3, {path("run"), "is a folder"});
  const Answer answer = octet({"analyze", path("run"), "--quiet", "--images", "8", "--html", "/proc/page"});
  EXPECT_EQ(answer.code, 3) << answer.err;
  expect_part(answer.err, "/proc/page");
  expect_part(answer.out, "all layers quantized");  // what was measured is shown all the same
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
