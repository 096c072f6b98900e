// SPDX-License-Identifier: Apache-2.0
// octet search: what it measures, the recipe it writes, what it refuses.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/base/files.h"
#include "src/data/dataset.h"
#include "src/net/checkpoint.h"
#include "tests/data/images.h"
#include "tests/net/onnx/model_builder.h"
#include "tests/report/markup.h"
#include "tests/tools/program.h"
#include "tests/tools/tiny_recipe.h"

namespace octet::test {
namespace {

using testing::occurrences;
using testing::parse_markup;

class Search : public ToolTest {
 protected:
  void SetUp() override {
    write("tiny.yaml", kTinyRecipe);
    const Answer trained = octet({"train", path("tiny.yaml"), "--out", path("run"), "--device", "cpu", "--quiet",
                                  "--set", "qat.epochs=0", "--set", "train.epochs=3"});
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  Answer search(std::vector<std::string> more) const {
    std::vector<std::string> words = {"search", path("run"), "--quiet", "--images", "16", "--points", "3"};
    words.insert(words.end(), more.begin(), more.end());
    return octet(words);
  }
};

TEST_F(Search, PlansFallInBitsAndInPredictedSqnr) {
  const Answer answer = search(
      {"--json", "--bits", "8,3,2", "--cost", "operations", "--svg", path("front.svg"), "--html", path("page.html")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const auto document = nlohmann::json::parse(answer.out);
  const auto& plans = document.at("plans");
  ASSERT_GE(plans.size(), 3u);
  EXPECT_TRUE(plans.front().at("layers").empty());
  for (size_t i = 1; i < plans.size(); ++i) {
    EXPECT_LT(plans[i].at("bit_operations"), plans[i - 1].at("bit_operations"));
    EXPECT_LE(plans[i].at("predicted_sqnr_db"), plans[i - 1].at("predicted_sqnr_db"));
  }
  for (const auto& layer : plans.back().at("layers")) {
    EXPECT_EQ(layer.value("weight_bits", 2), 2) << layer;
    EXPECT_EQ(layer.value("activation_bits", 2), 2) << layer;
  }
  EXPECT_TRUE(document.at("chosen").is_null());
  const std::string front = read_file(path("front.svg"));
  expect_part(front, "xmlns=");
  const double score = 100 * document.at("float").at("validation_top1").get<double>();
  size_t points = 0;  // of the line of the float network, one above each plan
  for (size_t at = 0; (at = front.find("<title>float, bit operations", at)) != std::string::npos; ++points) {
    at = front.find(": ", at);
    EXPECT_NEAR(std::stod(front.substr(at + 2)), score, 5e-4 * score);  // written with four digits
  }
  EXPECT_EQ(points, plans.size());
  const auto& searched = document.at("searched");
  EXPECT_TRUE(std::any_of(searched.begin(), searched.end(), [](const auto& l) { return l.at("what") == "output"; }));
  const std::string page = read_file(path("page.html"));
  EXPECT_EQ(parse_markup(page).error, "");
  expect_part(page, "--accuracy-drop or --mean-bits chooses a plan");
  EXPECT_EQ(occurrences(page, "class=\"ship\""), 0);
  for (const auto& layer : searched) {
    for (const char* bits : {"3", "2"}) {
      const auto& db = layer.at("alone_db").at(bits);
      expect_part(page, fmt::format("<title>{}, {} at {} bits: {}<", layer.at("layer").get<std::string>(),
                                    layer.at("what") == "output" ? "outputs" : "weights", bits,
                                    db.is_null() ? "lossless" : fmt::format("{:.1f} dB", db.get<double>())));
    }
  }
}

/// Where the cost is a sum over choices, each step pays more noise than the one before for what it saves of the cost
/// that was asked for.
TEST_F(Search, StepsTakeTheLeastNoiseForTheCostThatWasAskedFor) {
  for (const auto& [cost, key] : {std::pair{"size", "weight_bytes"}, std::pair{"operations", "bit_operations"}}) {
    const Answer answer = octet({"search", path("run"), "--quiet", "--images", "16", "--points", "1000", "--json",
                                 "--bits", "8,4,3,2", "--cost", cost});
    ASSERT_EQ(answer.code, 0) << answer.err;
    const auto document = nlohmann::json::parse(answer.out);
    const auto& plans = document.at("plans");
    ASSERT_GE(plans.size(), 4u);
    const auto noise = [&](size_t i) { return std::pow(10, -plans[i].at("predicted_sqnr_db").get<double>() / 10); };
    const auto of = [&, key = key](size_t i) { return plans[i].at(key).get<double>(); };
    double last = 0;
    for (size_t i = 1; i < plans.size() && std::string(cost) == "size"; ++i) {
      const double ratio = (noise(i) - noise(i - 1)) / (of(i - 1) - of(i));
      EXPECT_GE(ratio, last * (1 - 1e-6)) << cost << ": step " << i << " of " << plans.size();
      last = ratio;
    }
    size_t edges = 0, searched = 0;  // all of them have the fewest bits at last
    for (const auto& layer : plans.back().at("layers")) edges += layer.value("activation_bits", 0) == 2;
    for (const auto& layer : document.at("searched")) searched += layer.at("what") == "output";
    EXPECT_EQ(edges, searched) << cost;
    EXPECT_EQ(searched > 0, std::string(cost) == "operations");
  }
}

/// What a layer costs with the most bits is none of what fewer bits cost: from 8 to 4 and from 4 to 2 is from 8 to 2.
TEST_F(Search, TheNoiseOfTheMostBitsIsNotCounted) {
  const auto searched = [&](const char* bits) {
    const Answer answer = search({"--json", "--bits", bits});
    EXPECT_EQ(answer.code, 0) << answer.err;
    return nlohmann::json::parse(answer.out).at("searched");
  };
  const auto from_eight = searched("8,4,2"), from_four = searched("4,2");
  ASSERT_GE(from_eight.size(), 2u);
  ASSERT_EQ(from_four.size(), from_eight.size());
  for (size_t i = 0; i < from_eight.size(); ++i) {
    const auto noise = [i](const nlohmann::json& layers, const char* bits) {
      return std::pow(10, -layers[i].at("alone_db").at(bits).get<double>() / 10);
    };
    const double eight_to_four = noise(from_eight, "4"), eight_to_two = noise(from_eight, "2");
    EXPECT_GT(eight_to_four, 0);
    EXPECT_NEAR((eight_to_four + noise(from_four, "2")) / eight_to_two, 1, 1e-3 * eight_to_four / eight_to_two)
        << from_eight[i];
  }
}

/// Cells of the page against the plans of the document.
TEST_F(Search, ThePageHasEachPlansBitsAndMarksTheChosen) {
  const Answer answer = search({"--mean-bits", "6.5", "--json", "--html", path("page.html")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const auto document = nlohmann::json::parse(answer.out);
  const auto &plans = document.at("plans"), &searched = document.at("searched");
  const std::string page = read_file(path("page.html"));
  const auto markup = parse_markup(page);
  EXPECT_EQ(markup.error, "");
  ASSERT_GE(searched.size(), 3u);
  for (const auto& layer : searched) {
    EXPECT_EQ(layer.at("what"), "weights");
    for (const auto& plan : plans) {
      const auto& fewer = plan.at("layers");
      const bool has_fewer =
          std::any_of(fewer.begin(), fewer.end(), [&](const auto& l) { return l.at("match") == layer.at("layer"); });
      expect_part(page, fmt::format("<title>{}, {:.2f}: {}</title>", layer.at("layer").get<std::string>(),
                                    plan.at("weight_bits").get<double>(), has_fewer ? 4 : 8));
    }
  }
  const auto& chosen = plans.at(document.at("chosen").get<size_t>());
  const std::string bits = fmt::format("{:.2f}", chosen.at("weight_bits").get<double>());
  expect_part(markup.text, bits + " bits");
  EXPECT_EQ(occurrences(page, "<tr class=\"ship\">"), 1);
  expect_part(page, "<tr class=\"ship\"><th scope=\"row\" data-label=\"bits of weights\"><span>" +
                        fmt::format("{}.<wbr/>{}", bits.substr(0, 1), bits.substr(2)));
  EXPECT_EQ(occurrences(page, "stroke-width=\"1.5\"/>"), 1) << "a frame about its column";
  EXPECT_EQ(occurrences(page, "<title>chosen, weights, kB "), 1);
}

TEST_F(Search, TheChosenPlanIsARecipeThatTrains) {
  const Answer answer = search({"--mean-bits", "6.5", "--json", "--out", path("plan.yaml")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const auto document = nlohmann::json::parse(answer.out);
  const auto& plan = document.at("plans").at(document.at("chosen").get<size_t>());
  EXPECT_LE(plan.at("weight_bits"), 6.5);
  EXPECT_FALSE(plan.at("layers").empty());
  const Answer trained = octet({"train", path("plan.yaml"), "--out", path("planned"), "--device", "cpu", "--quiet"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(read_file(path("planned/float.safetensors")), read_file(path("run/float.safetensors")));  // it goes on
  const Answer analyzed = octet({"analyze", path("planned"), "--json", "--quiet", "--images", "8"});
  ASSERT_EQ(analyzed.code, 0) << analyzed.err;
  const auto layers = nlohmann::json::parse(analyzed.out).at("layers");
  for (const auto& entry : plan.at("layers")) {
    const auto layer =
        std::find_if(layers.begin(), layers.end(), [&](const auto& l) { return l.at("layer") == entry.at("match"); });
    ASSERT_NE(layer, layers.end()) << entry;
    EXPECT_EQ(layer->at("weight_bits"), entry.at("weight_bits"));
  }
}

/// Five convolutions, of which the first and the last are pinned.
std::string five_layers() {
  ModelBuilder model({3, 16, 16});
  std::string x = "image";
  for (const std::string name : {"a", "b", "c", "d", "e"}) {
    model.weight(name + ".weight", {8, x == "image" ? 3 : 8, 3, 3});
    model.weight(name + ".bias", {8});
    model.node("Conv", {x, name + ".weight", name + ".bias"}, name).ints("pads", {1, 1, 1, 1});
    x = name;
    if (name == "e") break;
    x = name + ".relu";
    model.node("Relu", {name}, x);
  }
  return model.bytes("e");
}

class SearchImages : public ToolTest {
 protected:
  void SetUp() override {
    write("net.onnx", five_layers());
    std::filesystem::create_directory(path("images"));
    for (int i = 0; i < 15; ++i)
      write("images/" + std::to_string(i) + ".png", encode_png(testing::noise(20, 20, 3, static_cast<uint64_t>(i))));
  }
};

TEST_F(SearchImages, GoesByWhatTheOutputsKeepAndWritesTheChosenNetwork) {
  const Answer answer =
      octet({"search", path("net.onnx"), "--images", path("images"), "--preset", "none", "--device", "cpu", "--points",
             "4", "--mean-bits", "6", "--out", path("plan.safetensors"), "--json"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  for (const char* part : {"lost on 3 images that chose nothing, repairs: bias correction", "proof: identical"})
    expect_part(answer.err, part);
  const auto document = nlohmann::json::parse(answer.out);
  EXPECT_EQ(document.at("float").at("validation_kept"), 1);
  const auto& plans = document.at("plans");
  ASSERT_GE(plans.size(), 3u);
  EXPECT_GT(plans.front().at("validation_kept"), 0.9);  // of 8 bits
  EXPECT_LT(plans.back().at("validation_kept"), plans.front().at("validation_kept"));
  const auto& plan = plans.at(document.at("chosen").get<size_t>());
  EXPECT_LE(plan.at("weight_bits"), 6);
  ASSERT_FALSE(plan.at("layers").empty());
  const Int8Graph graph = read_checkpoint(path("plan.safetensors"));
  for (const auto& layer : plan.at("layers")) {
    const auto node = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                   [&](const Int8Node& n) { return n.name == layer.at("match").get<std::string>(); });
    ASSERT_NE(node, graph.nodes.end()) << layer;
    EXPECT_LE(*std::max_element(node->weight.begin(), node->weight.end()), 7) << layer;
  }
}

TEST_F(SearchImages, WhatDoesNotFitIsRefused) {
  const std::string net = path("net.onnx"), images = path("images");
  expect_refusal(octet({"search", net, "--images", images}), 2, {"--preset imagenet"});
  expect_refusal(octet({"search", net, "--images", images, "--preset", "none", "--set", "seed=1"}), 2, {"--set"});
  expect_refusal(octet({"search", images, "--preset", "none"}), 2, {"--images FOLDER"});
  write("there", "mine");
  expect_refusal(
      octet({"search", net, "--images", images, "--preset", "none", "--mean-bits", "6", "--out", path("there")}), 2,
      {"exists and stays as it is"});
  EXPECT_EQ(read_file(path("there")), "mine");
  const std::string network = read_file(net);
  expect_refusal(octet({"search", net, "--images", images, "--preset", "none", "--svg", net, "--force"}), 2,
                 {net, "is read by this command"});
  EXPECT_EQ(read_file(net), network);
  expect_refusal(octet({"search", net, "--images", images, "--preset", "none", "--method", "auto"}), 2,
                 {"--method auto"});
  expect_refusal(octet({"search", path("images"), "--images", images, "--preset", "none"}), 2,
                 {"leave --images FOLDER out"});
  const Answer none =
      octet({"search", net, "--images", images, "--preset", "none", "--device", "cpu", "--mean-bits", "2"});
  EXPECT_EQ(none.code, 1);
  expect_part(none.err, "name fewer bits in --bits\n");
  std::filesystem::create_directory(path("black"));
  for (int i = 0; i < 6; ++i)
    write("black/" + std::to_string(i) + ".png", encode_png({20, 20, 3, std::vector<uint8_t>(1200)}));
  expect_refusal(octet({"search", net, "--images", path("black"), "--preset", "none", "--device", "cpu"}), 3,
                 {"nothing to calibrate on"});
}

TEST_F(Search, AnImageThatCannotBeWrittenDoesNotCostThePlan) {
  for (const char* option : {"--svg", "--html"}) {
    const Answer answer = search({"--mean-bits", "6.5", "--out", path("plan.yaml"), option, "/proc/front"});
    EXPECT_EQ(answer.code, 3) << answer.err;
    expect_part(answer.err, "/proc/front");
    EXPECT_TRUE(std::filesystem::remove(path("plan.yaml"))) << option;
  }
}

TEST_F(Search, AFolderThatIsNotThereIsRefusedBeforeTheWork) {
  for (const char* option : {"--svg", "--html"})  // before the run is even looked for
    expect_refusal(octet({"search", path("norun"), option, path("nowhere/page")}), 3, {"nowhere/page", "no folder"});
  expect_refusal(octet({"search", path("norun"), "--html", path("run")}), 3, {path("run"), "is a folder"});
}

TEST_F(Search, NoFileOverwritesAnother) {
  expect_refusal(search({"--svg", path("a"), "--html", path("./a")}), 2, {"--svg and --html both name", "./a"});
  expect_refusal(search({"--mean-bits", "6", "--out", path("a"), "--html", path("a")}), 2, {"--out and --html both"});
  EXPECT_FALSE(std::filesystem::exists(path("a")));
  for (const char* command : {"search", "analyze"}) {
    const std::string again = path("run/../tiny.yaml"), weights = path("run/float.safetensors");
    expect_refusal(octet({command, path("tiny.yaml"), "--html", again}), 2,
                   {"the recipe and --html both name " + again});
    expect_refusal(octet({command, path("run"), "--html", path("run/recipe.yaml")}), 2, {"the recipe and --html"});
    expect_refusal(octet({command, path("run"), "--html", weights}), 2, {"the run's weights and --html both name"});
    expect_refusal(octet({command, path("run"), "--html", path("run/int8.safetensors")}), 2,
                   {"the run's checkpoint and --html both name"});
    expect_refusal(octet({command, path("tiny.yaml"), "--set", "model.weights=" + weights, "--html", weights}), 2,
                   {"model.weights and --html both name " + weights});
  }
}

/// What convolutions read of an edge that residual_bits keeps wide is a node of its own: its error counts, too. The
/// prediction is then near what the whole plan has.
TEST_F(Search, EdgesBesideResidualBitsAreNotFree) {
  const std::string recipe = std::string(kTinyRecipe).replace(std::string(kTinyRecipe).find("small_cnn"), 9, "resnet8");
  write("resnet.yaml", recipe + "quant: {residual_bits: 8}\n");
  ASSERT_EQ(octet({"train", path("resnet.yaml"), "--out", path("resnet"), "--device", "cpu", "--quiet", "--set",
                   "qat.epochs=0", "--set", "data.image_size=16", "--set", "calibrate.method=mse"})
                .code,
            0);
  const Answer found = octet({"search", path("resnet"), "--quiet", "--json", "--bits", "8,2", "--cost", "operations",
                              "--images", "16", "--points", "2", "--mean-bits", "7.9", "--out", path("plan.yaml")});
  ASSERT_EQ(found.code, 0) << found.err;
  const auto document = nlohmann::json::parse(found.out);
  const auto& plan = document.at("plans").at(document.at("chosen").get<size_t>());
  ASSERT_EQ(octet({"train", path("plan.yaml"), "--out", path("planned"), "--device", "cpu", "--quiet"}).code, 0);
  const Answer analyzed = octet({"analyze", path("planned"), "--json", "--quiet", "--images", "16"});
  ASSERT_EQ(analyzed.code, 0) << analyzed.err;
  const double has = nlohmann::json::parse(analyzed.out).at("all").at("sqnr_db");
  EXPECT_NEAR(plan.at("predicted_sqnr_db").get<double>(), has, 0.3);  // without those nodes 0.5 dB too many
}

TEST_F(Search, AnAccuracyDropIsKeptOrRefused) {
  const Answer kept = search({"--accuracy-drop", "100"});
  ASSERT_EQ(kept.code, 0) << kept.err;
  expect_part(kept.out, "chosen");
  const Answer refused =
      search({"--bits", "3,2", "--set", "quant.first_layer_bits=2", "--set", "quant.last_layer_bits=2", "--set",
              "quant.input_bits=2", "--accuracy-drop", "0", "--out", path("none.yaml"), "--html", path("none.html")});
  EXPECT_EQ(refused.code, 1) << refused.err;
  expect_part(refused.out, "lost points");  // what was measured is shown all the same
  expect_part(refused.err, "no plan loses at most 0 points: the best of");
  EXPECT_FALSE(std::filesystem::exists(path("none.yaml")));
  expect_part(parse_markup(read_file(path("none.html"))).text, "no plan loses at most 0 points");
}

TEST_F(Search, WhatCannotBeSearchedIsRefused) {
  expect_refusal(octet({"search", path("tiny.yaml")}), 2, {"tiny.yaml", "needs trained weights"});
  expect_refusal(search({"--bits", "4,8"}), 2, {"bits 4,8", "falling"});
  expect_refusal(search({"--bits", "8"}), 2, {"bits 8", "at least two"});
  expect_refusal(search({"--out", path("plan.yaml")}), 2, {"--accuracy-drop or --mean-bits"});
  expect_refusal(search({"--set", "quant.layers=[{match: '*', weight_bits: 8}]"}), 2, {"nothing to search"});
  EXPECT_EQ(search({"--mean-bits", "5", "--accuracy-drop", "1"}).code, 2);
}

}  // namespace
}  // namespace octet::test
