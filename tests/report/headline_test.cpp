// SPDX-License-Identifier: Apache-2.0
// What the report says first: whether int8 costs anything, and against what.
#include "src/report/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/report/full_report.h"

namespace octet {
namespace {

using nlohmann::json;
using testing::full_report;
using testing::right_from;

/// The lines under the table of a run whose networks have these images right.
std::string said(const std::vector<Evaluation>& networks, bool qat) {
  Report report;
  for (const Evaluation& network : networks) report.rows.push_back({network});
  if (qat) report.epochs = {{"float", 1}, {"qat", 1}};
  std::string text;
  for (const std::string& sentence : accuracy_sentences(headline(report))) text += sentence + "\n";
  EXPECT_NE(report_table(report).find(text), std::string::npos);
  return text;
}

TEST(Headline, ADifferenceThatMayBeChanceIsNeitherCostNorGain) {
  const std::string less =
      said({right_from("float", 0, 9173), right_from("ptq", 0, 9173), right_from("cpu", 10, 9179)}, true);
  EXPECT_EQ(less,
            "float 91.73 % -> cpu 91.69 %: -0.04 points of top-1, no difference that 10,000 images show (95 % "
            "interval -0.12 to +0.04; 10 only float has right, 6 only cpu)\n");
  const std::string more = said({right_from("float", 10, 9179), right_from("cpu", 0, 9173)}, true);
  EXPECT_NE(more.find(": +0.04 points of top-1, no difference"), std::string::npos) << more;
  for (const char* word : {"costs", "gains", "loses"}) EXPECT_EQ((less + more).find(word), std::string::npos) << word;
}

TEST(Headline, ADifferenceThatIsNoChanceIsNamed) {
  EXPECT_EQ(
      said({right_from("float", 0, 9173), right_from("cpu", 40, 9177)}, true),
      "float 91.73 % -> cpu 91.37 %: quantization with further training costs 0.36 points of top-1 (95 % interval "
      "-0.49 to -0.23; 40 only float has right, 4 only cpu)\n");
  EXPECT_NE(
      said({right_from("float", 40, 9177), right_from("cpu", 0, 9173)}, true)
          .find(
              "91.73 %: quantization with further training gains 0.36 points of top-1 (95 % interval +0.23 to +0.49;"),
      std::string::npos);
}

TEST(Headline, QatIsHeldAgainstTheFloatNetworkThatTrainedAsLong) {
  Report report = full_report(3);
  report.rows.push_back({right_from("float_control", 0, 9240)});
  const Headline h = headline(report);
  EXPECT_EQ(h.baseline->evaluation.name, "float_control");
  EXPECT_NEAR(h.lost.points, 0.71, 1e-9);
  EXPECT_NEAR(h.ptq_lost.points, 0.31, 1e-9);
  const json j = json::parse(report_json(report)).at("headline");
  EXPECT_EQ(j["baseline"], "float_control");
  EXPECT_EQ(j["baseline_top1"], 0.9240);
  EXPECT_EQ(j["float_top1"], 0.9173);
  EXPECT_NEAR(j["control_points_lost"].get<double>(), -0.67, 1e-9);
  EXPECT_NE(report_table(report).find("float_control 92.40 % -> cpu 91.69 %: quantization costs 0.71"),
            std::string::npos);
  EXPECT_NE(report_html(report).find("int8 against float_control"), std::string::npos);
}

/// Two bits: the network that ships is that of QAT, and PTQ's loss is not its.
TEST(Headline, ALossOfPtqIsNamedAsOne) {
  const std::string after_qat =
      said({right_from("float", 0, 7960), right_from("ptq", 0, 980), right_from("cpu", 0, 6780)}, true);
  EXPECT_NE(after_qat.find("float 79.60 % -> cpu 67.80 %: quantization with further training costs 11.80 points"),
            std::string::npos)
      << after_qat;
  EXPECT_NE(after_qat.find("\npost-training quantization alone loses 69.80 points (79.60 % -> 9.80 %); QAT gets 58.00 "
                           "back\n"),
            std::string::npos)
      << after_qat;
  const std::string alone =
      said({right_from("float", 0, 7960), right_from("ptq", 0, 980), right_from("cpu", 0, 980)}, false);
  EXPECT_NE(alone.find("float 79.60 % -> cpu 9.80 %: post-training quantization costs 69.80 points"), std::string::npos)
      << alone;
  EXPECT_EQ(alone.find("QAT"), std::string::npos) << alone;
}

/// A float network without ranges may explode in training where the int8 one does not: "quantization gains 15 points".
TEST(Headline, AFloatControlThatTrainingRuinedIsNoMeasure) {
  const auto with = [](int control, int int8) {
    return said({right_from("float", 0, 4506), right_from("float_control", 0, control), right_from("cpu", 0, int8)},
                true);
  };
  const std::string ruined = with(3023, 4584);
  EXPECT_NE(ruined.find("quantization gains 15.61 points"), std::string::npos) << ruined;
  EXPECT_NE(
      ruined.find("\nthe float control is no measure of that: training on, at a rate that the int8 network bears, "
                  "made the float network 14.83 points worse (45.06 % -> 30.23 %)"),
      std::string::npos)
      << ruined;
  for (const auto& [control, int8] : {std::pair(4505, 4600), std::pair(4480, 4470), std::pair(4700, 4800)})
    EXPECT_EQ(with(control, int8).find("no measure"), std::string::npos) << control;
}

TEST(Headline, TheCardHoldsNoPointsAgainstARuinedControl) {
  Report report = full_report(3);
  report.rows = {{right_from("float", 0, 4506)}, {right_from("float_control", 0, 3023)}, {right_from("cpu", 0, 4584)}};
  const Card card = result_cards(report).front();
  EXPECT_EQ(card.value, "45.84 %");
  EXPECT_EQ(card.what, "float 45.06 % before training on, 30.23 % after: a control that is no measure of int8");
  report.rows[1].evaluation = right_from("float_control", 0, 4700);
  EXPECT_EQ(result_cards(report).front().value,
            "\xE2\x88\x92"
            "1.16 points");
}

TEST(Headline, ARowOfFewerImagesIsHeldAgainstTheSameOnes) {
  Evaluation first = right_from("cpu", 0, 100);
  first.right.resize(200);
  first.images = 200;
  Report report;
  report.rows = {{right_from("float", 0, 9173)}, {first}};
  const Headline h = headline(report);
  EXPECT_EQ(h.lost.images, 200);
  EXPECT_DOUBLE_EQ(h.lost.points, 50);
}

}  // namespace
}  // namespace octet
