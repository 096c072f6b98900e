// SPDX-License-Identifier: Apache-2.0
// octet train --gpus 2: two processes train one network on this machine's CPU.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/base/files.h"
#include "src/recipe/run.h"
#include "tests/tools/built.h"
#include "tests/tools/ranks_tool.h"

namespace octet::test {
namespace {

namespace fs = std::filesystem;

TEST_F(RanksTool, OneRunOneDocumentNoDifferingCode) {
  const Answer answer = train({"--out", path("run"), "--ranks", "2", "--json", "--quiet"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.err, "");
  const RunDirectory run{path("run")};
  const auto report = nlohmann::json::parse(answer.out);
  EXPECT_EQ(report, nlohmann::json::parse(read_file(run.report_json())));
  EXPECT_EQ(report.at("notes").at(0), "2 processes trained together");
  EXPECT_NE(read_file(run.command()).find(" --gpus 2"), std::string::npos);
  const Answer again = octet({"train", run.root, "--resume", "--gpus", "2", "--device", "cpu", "--json"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(nlohmann::json::parse(again.out), report);
  ASSERT_EQ(report.at("epochs").at(0).at("ranks").size(), 2u);
  for (const nlohmann::json& rank : report.at("epochs").at(0).at("ranks")) {
    EXPECT_GT(rank.at("images_per_second"), 0);
    EXPECT_GT(rank.at("exchange_share"), 0);
    EXPECT_LT(rank.at("exchange_share"), 1);
  }
  EXPECT_TRUE(fs::is_regular_file(run.float_control()));
  const std::string metrics = read_file(run.metrics());
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 5);  // an epoch of float, two of QAT and the control
  EXPECT_EQ(octet({"compare", path("run"), "--quiet"}).code, 0);
  expect_refusal(octet({"compare", path("run"), "--set", "evaluate.engines=[cpu]"}), 2,
                 {"evaluate.engines", "--engine"});
}

/// Cut where this machine's times say, trained as two stages, gone on with as one process: the same codes everywhere.
TEST_F(RanksTool, StagesAreProposedTrainedAndCompared) {
  const Answer proposed =
      octet({"inspect", path("tiny.yaml"), "--stages", "2", "--device", "cpu", "--json", "--quiet"});
  ASSERT_EQ(proposed.code, 0) << proposed.err;
  const auto plan = nlohmann::json::parse(proposed.out);
  ASSERT_EQ(plan.at("layers").size(), 1u);
  EXPECT_GT(plan.at("speed_up"), 1);
  EXPECT_LE(plan.at("speed_up"), 2);
  EXPECT_GT(plan.at("parts").size(), 2u);
  for (const nlohmann::json& stage : plan.at("stages")) {
    EXPECT_GT(stage.at("fastest_milliseconds"), 0);
    EXPECT_GE(stage.at("milliseconds"), stage.at("fastest_milliseconds"));
    EXPECT_GT(stage.at("slowest_milliseconds"), stage.at("fastest_milliseconds"));
    EXPECT_GE(stage.at("slowest_milliseconds"), stage.at("milliseconds"));
    EXPECT_GT(stage.at("kept_bytes"), 0);
    EXPECT_GT(stage.at("weight_bytes"), 0);
  }
  const std::string layer = plan.at("layers").at(0);
  const std::vector<std::string> staged{
      "--out", path("run"), "--set", "parallel.stages=[" + layer + "]", "--set", "parallel.micro_batches=4"};
  std::vector<std::string> two = staged;
  two.insert(two.end(), {"--gpus", "2", "--json", "--quiet"});
  const Answer answer = train(two);
  ASSERT_EQ(answer.code, 0) << answer.err;
  const auto report = nlohmann::json::parse(answer.out);
  EXPECT_EQ(report.at("headline").at("differing_codes"), 0);
  EXPECT_GT(report.at("headline").at("compared_codes"), 0);
  EXPECT_EQ(report.at("epochs").at(0).at("ranks").size(), 2u);
  EXPECT_EQ(octet({"compare", path("run"), "--quiet"}).code, 0);
}

TEST_F(RanksTool, WhatStagesCannotTrainIsNotProposed) {
  expect_refusal(
      octet({"inspect", path("tiny.yaml"), "--stages", "2", "--device", "cpu", "--set", "qat.precision=fp16"}), 2,
      {"qat.precision fp16", "--set qat.precision=fp32"});
}

TEST_F(RanksTool, StagesThatCannotBeAreRefused) {
  const auto refused = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--out", path("run")});
    const Answer answer = train(more);
    EXPECT_EQ(answer.code, 2) << answer.err;
    EXPECT_FALSE(fs::exists(path("run")));
    return answer.err;
  };
  expect_part(refused({"--set", "parallel.stages=[nobody]"}), "has no layer 'nobody'");
  expect_part(refused({"--set", "parallel.stages=[conv1]", "--set", "parallel.micro_batches=5"}),
              "train.batch_size: 32 is no multiple of parallel.micro_batches 5");
  expect_part(refused({"--set", "parallel.stages=[conv1]", "--gpus", "3"}),
              "with 1 cut there are 2 stages, a process each, but 3 were started; start 2, or a multiple of it");
  expect_part(refused({"--set", "parallel.stages=[conv1]", "--set", "quant.scales=observed"}), "quant.scales");
  expect_part(refused({"--set", "parallel.stages=[conv1]", "--set", "train.sync_batch_norm=true"}),
              "train.sync_batch_norm: each micro-batch of parallel.stages has its own statistics");
  expect_part(refused({"--set", "parallel.exchange=fp16"}), "parallel.exchange: fp16 loses gradients below 6e-8");
}

TEST_F(RanksTool, ANetworkWithoutBatchNorm) {
  const Answer answer = train({"--out", path("run"), "--ranks", "2", "--set", "model.folded=true", "--set",
                               "qat.epochs=0", "--set", "qat.float_control=false", "--quiet"});
  EXPECT_EQ(answer.code, 0) << answer.err;
}

/// Rows without times, comparison and confusion: what the images decide.
nlohmann::json measured(const Answer& answer) {
  const auto report = nlohmann::json::parse(answer.out);
  nlohmann::json rows = report.at("rows");
  for (nlohmann::json& row : rows)
    for (const char* time : {"images_per_second", "latency_median_ms", "latency_p99_ms", "latency_runs"})
      row.erase(time);
  return {rows, report.at("comparison"), report.at("confusion")};
}

/// Every loss is a sum over images whose last bits hang on the order; every count is of each image once.
TEST_F(RanksTool, TwoMeasureWhatOneDoes) {
  ASSERT_EQ(train({"--out", path("trained"), "--set", "qat.epochs=0", "--set", "qat.float_control=false"}).code, 0);
  const std::vector<std::string> words{"--set",  "model.weights=" + RunDirectory{path("trained")}.float_weights(),
                                       "--set",  "train.epochs=0",
                                       "--set",  "qat.epochs=0",
                                       "--set",  "qat.float_control=false",
                                       "--set",  "evaluate.batch_size=16",
                                       "--set",  "evaluate.reference_images=40",
                                       "--json", "--quiet"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = words;
    all.insert(all.end(), more.begin(), more.end());
    return train(all);
  };
  const Answer one = with({"--out", path("one")}), two = with({"--out", path("two"), "--gpus", "2"});
  ASSERT_EQ(one.code, 0) << one.err;
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(measured(one), measured(two));
  EXPECT_EQ(read_file(RunDirectory{path("one")}.int8("int8.safetensors")).size(),
            read_file(RunDirectory{path("two")}.int8("int8.safetensors")).size());
}

/// By the launcher, or by rank 0 of those that all found it.
TEST_F(RanksTool, ARefusalIsSaidOnce) {
  const auto lines = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--out", path("run"), "--ranks", "2"});
    const auto begin = std::chrono::steady_clock::now();
    const Answer answer = train(more);
    EXPECT_EQ(answer.code, 2) << answer.err;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    return std::count(answer.err.begin(), answer.err.end(), '\n');
  };
  EXPECT_EQ(lines({"--set", "train.epoch=3"}), 1);
  EXPECT_EQ(lines({"--set", "qat.batch_size=33"}), 1);
}

/// "auto" is no CPU where several were asked for by name: --gpus.
TEST_F(RanksTool, WithoutAGpuTheCpuIsNotTakenUnasked) {
  const std::string hidden =
      fmt::format("CUDA_VISIBLE_DEVICES= {} train {} --out {}", octet_program(), path("tiny.yaml"), path("run"));
  const Answer launched = command({"bash", "-c", hidden + " --gpus 2"});
  expect_refusal(launched, 2, {"2 processes train on a GPU each: ", "on the CPU with --device cpu"});
  EXPECT_EQ(std::count(launched.err.begin(), launched.err.end(), '\n'), 1);
  const Answer started = command({"bash", "-c", "WORLD_SIZE=2 RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=9 " + hidden});
  expect_refusal(started, 2, {"2 processes train on a GPU each: "});
  EXPECT_FALSE(fs::exists(path("run")));
}

TEST_F(RanksTool, WhatDoesNotFitIsRefusedBeforeAnythingIsWritten) {
  const Answer odd = train({"--out", path("run"), "--ranks", "2", "--set", "qat.batch_size=33"});
  EXPECT_EQ(odd.code, 2) << odd.err;
  expect_part(odd.err, "qat.batch_size 33: 2 processes share each batch, so it must be a multiple of 2");
  const Answer observed = train(
      {"--out", path("run"), "--ranks", "2", "--set", "quant.scales=observed", "--set", "quant.observer=histogram"});
  EXPECT_EQ(observed.code, 2) << observed.err;
  expect_part(observed.err, "quant.observer: histogram would count each process's own images");
  EXPECT_FALSE(fs::exists(path("run")));
  expect_refusal(octet({"train", "none", "--resume"}), 2, {"none: no such run directory", "octet train RECIPE"});
}

}  // namespace
}  // namespace octet::test
