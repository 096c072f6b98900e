// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "src/report/report.h"
#include "tests/report/full_report.h"
#include "tests/source_dir.h"

namespace octet {
namespace {

using nlohmann::json;
using testing::full_report;

/// Paths of all leaves: "rows[].top1". Keys of `versions` are names, not keys of the format.
void collect_paths(const json& value, const std::string& path, std::set<std::string>& paths) {
  if (value.is_object()) {
    for (const auto& [key, child] : value.items()) {
      collect_paths(child, path.empty() ? key : path + "." + (path == "versions" ? "<name>" : key), paths);
    }
  } else if (value.is_array()) {
    for (const json& child : value) collect_paths(child, path + "[]", paths);
  } else if (!value.is_null()) {
    paths.insert(path);
  }
}

/// First column of the table of keys in src/report/README.md.
std::set<std::string> documented_keys() {
  std::ifstream readme(source_dir() + "/src/report/README.md");
  std::set<std::string> keys;
  bool inside = false;
  for (std::string line; std::getline(readme, line);) {
    if (line.starts_with("## ")) inside = line == "## report.json";
    if (!inside || !line.starts_with("| `")) continue;
    keys.insert(line.substr(3, line.find('`', 3) - 3));
  }
  return keys;
}

TEST(ReportJson, EveryKeyIsDocumentedAndEveryDocumentedKeyIsWritten) {
  std::set<std::string> written;
  Report controlled = full_report(10);
  controlled.rows.push_back({testing::right_from("float_control", 0, 9240)});
  collect_paths(json::parse(report_json(controlled)), "", written);
  collect_paths(json::parse(report_json(testing::pixels_report())), "", written);
  collect_paths(json::parse(report_json(testing::boxes_report())), "", written);
  const std::set<std::string> documented = documented_keys();
  EXPECT_GT(documented.size(), 50u);
  for (const auto& key : written) EXPECT_TRUE(documented.contains(key)) << key << " is not in src/report/README.md";
  for (const auto& key : documented) EXPECT_TRUE(written.contains(key)) << key << " is documented but not written";
}

TEST(ReportJson, HoldsTheNumbers) {
  const json j = json::parse(report_json(full_report(10)));
  EXPECT_EQ(j["title"], "run <one> & \"two\"");
  EXPECT_EQ(j["headline"]["int8_row"], "cpu");
  const json& headline = j["headline"];
  EXPECT_EQ(headline["baseline"], "float");
  EXPECT_EQ(headline["paired_images"], 10000);
  EXPECT_EQ(headline["only_baseline_right"], 10);
  EXPECT_EQ(headline["only_int8_right"], 6);
  EXPECT_NEAR(headline["points_lost"].get<double>(), 0.04, 1e-9);
  EXPECT_NEAR(headline["points_lost_low"].get<double>(), -0.0384, 1e-4);
  EXPECT_NEAR(headline["points_lost_high"].get<double>(), 0.1184, 1e-4);
  EXPECT_EQ(headline["told_apart"], false);
  EXPECT_NEAR(headline["ptq_points_lost"].get<double>(), 0.31, 1e-9);
  EXPECT_NEAR(headline["qat_points_back"].get<double>(), 0.27, 1e-9);
  EXPECT_EQ(j["headline"]["size_ratio"], 4.0);
  EXPECT_EQ(j["headline"]["speed_up"], 7.5);
  EXPECT_EQ(j["headline"]["identical"], true);
  EXPECT_EQ(j["headline"]["compared_codes"], 1500);
  ASSERT_EQ(j["rows"].size(), 5u);
  EXPECT_EQ(j["rows"][1]["name"], "ptq");
  EXPECT_TRUE(j["rows"][1]["bytes"].is_null());
  EXPECT_EQ(j["rows"][3]["differing_predictions"], 0);
  EXPECT_EQ(j["epochs"][2]["phase"], "qat");
  EXPECT_TRUE(j["layers"][1]["weights"].is_null());
  EXPECT_TRUE(j["layers"][1]["weight_sqnr_db"].is_null());
  EXPECT_EQ(j["layers"][0]["weights"]["counts"], json::parse("[1.0, 4.0, 2.0]"));
  EXPECT_EQ(j["confusion"]["row"], "cpu");
  EXPECT_EQ(j["confusion"]["counts"][1], json::parse("[0, 1, 3]"));
  EXPECT_EQ(j["confusion"]["counts"].size(), 12u);
  EXPECT_EQ(j["versions"]["octet"], "0.1.0");
}

TEST(ReportJson, SaysWhichEngineRanEachLayer) {
  Report report = full_report(3);
  for (ReportLayer& layer : report.layers) layer.kernels.clear();
  add_kernels(report.layers, "cuda", {{"conv<1>", "mma_128", "cuda"}, {"other", "x", ""}, {"pool", "pool_cuda", ""}});
  add_kernels(report.layers, "cudnn", {{"conv<1>", "cudnn_conv", "cudnn"}, {"pool", "pool_cuda", "cuda"}});
  const json layers = json::parse(report_json(report)).at("layers");
  const auto ran = [](const char* program, const char* engine, const char* kernel) {
    return json{{"program", program}, {"engine", engine}, {"kernel", kernel}};
  };
  EXPECT_EQ(layers[0]["kernels"], json::array({ran("cuda", "cuda", "mma_128"), ran("cudnn", "cudnn", "cudnn_conv")}));
  EXPECT_EQ(layers[1]["kernels"], json::array({ran("cuda", "cuda", "pool_cuda"), ran("cudnn", "cuda", "pool_cuda")}));
  EXPECT_EQ(layers[0]["engine"], "cuda");
  EXPECT_EQ(layers[0]["kernel"], "mma_128");
  const std::string html = report_html(report);
  EXPECT_NE(html.find("cudnn, run by cuda"), std::string::npos);
  EXPECT_EQ(html.find("cuda, run by"), std::string::npos);
}

TEST(ReportJson, SaysWhichImagesARowHasRight) {
  Report report = full_report(3);
  report.rows[0].evaluation.right = {true, false, false, true, true, true};
  const json rows = json::parse(report_json(report))["rows"];
  EXPECT_EQ(rows[0]["right"], "9c");
  EXPECT_EQ(rows[1]["right"].get<std::string>().size(), 2500);
}

TEST(ReportJson, AnEmptyReportIsNullNotZero) {
  const json j = json::parse(report_json(Report{}));
  EXPECT_TRUE(j["comparison"].is_null());
  EXPECT_TRUE(j["confusion"].is_null());
  EXPECT_TRUE(j["headline"]["identical"].is_null());
  EXPECT_TRUE(j["headline"]["points_lost"].is_null());
  EXPECT_TRUE(j["rows"].is_array());
}

TEST(ReportJson, WhatNobodyPromisesIsNeitherKeptNorBroken) {
  Report report = full_report(10);
  report.comparison.exact = {false, false};
  const json j = json::parse(report_json(report));
  EXPECT_TRUE(j["headline"]["identical"].is_null());
  EXPECT_TRUE(j["headline"]["differing_codes"].is_null());
  EXPECT_EQ(j["headline"]["compared_codes"], 1500);
  EXPECT_TRUE(j["comparison"]["identical"].is_null());
}

TEST(ReportJson, ConstantsAreCountedAndWrongOnesBreakThePromise) {
  Report report = full_report(10);
  const json kept = json::parse(report_json(report));
  EXPECT_EQ(kept["comparison"]["constants"], 5468);
  EXPECT_EQ(kept["comparison"]["wrong_constants"], 0);
  EXPECT_EQ(kept["headline"]["identical"], true);
  report.comparison.constants.wrong = 1;
  report.comparison.constants.first = {{"conv<1>", "bias", 0, 1, 2}};
  for (const bool promised : {true, false}) {
    report.comparison.exact = {promised, promised};
    const json broken = json::parse(report_json(report));
    EXPECT_EQ(broken["comparison"]["wrong_constants"], 1);
    EXPECT_EQ(broken["comparison"]["identical"], false);
    EXPECT_EQ(broken["headline"]["identical"], false) << "or octet train --resume takes the run for a good one";
  }
  report.comparison.constants = {};
  EXPECT_TRUE(json::parse(report_json(report))["comparison"]["constants"].is_null());
}

TEST(ReportJson, InfiniteSqnrIsNull) {
  Report report = full_report(3);
  report.layers[0].statistics.sqnr_db = report.layers[0].statistics.weight_sqnr_db =
      std::numeric_limits<double>::infinity();
  const json layer = json::parse(report_json(report))["layers"][0];
  EXPECT_TRUE(layer["sqnr_db"].is_null());
  EXPECT_TRUE(layer["weight_sqnr_db"].is_null());
}

TEST(ReportJson, OddInputStaysJson) {
  Report report = full_report(3);
  report.command = "octet \xff\xfe";  // not UTF-8
  report.rows[0].evaluation.loss = std::numeric_limits<double>::quiet_NaN();
  const json j = json::parse(report_json(report));
  EXPECT_TRUE(j["rows"][0]["loss"].is_null());
  EXPECT_EQ(j["command"], "octet \xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(ReportTable, HasEveryRow) {
  const std::string table = report_table(full_report(10));
  EXPECT_NE(table.find("41.1 M multiply-adds"), std::string::npos);
  for (const char* name : {"float", "ptq", "qat_graph", "cpu", "reference"}) {
    EXPECT_NE(table.find(std::string("\n") + name + " "), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace octet
