// SPDX-License-Identifier: Apache-2.0
// octet bench: what it measured, and what it says of what it could not measure.
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "kernels/core/cpu.h"
#include "src/base/files.h"
#include "src/base/threads.h"
#include "src/engine/engine.h"
#include "src/net/zoo.h"
#include "tests/tools/program.h"

namespace octet::test {
namespace {

class Bench : public ToolTest {
 protected:
  void SetUp() override { checkpoint_ = random_checkpoint(); }
  std::string checkpoint_;
};

TEST_F(Bench, MeasuresEveryEngineAndBatch) {
  const Answer answer = octet({"bench", checkpoint_, "--batch", "1,3", "--engine", "cpu,reference", "--seconds", "0.01",
                               "--layers", "--json", "--quiet"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.err, "");
  const auto document = nlohmann::json::parse(answer.out);
  EXPECT_EQ(document.at("interrupted"), false);
  EXPECT_EQ(document.at("cpu_kernels"), kernels::cpu_isa_name(kernels::best_cpu_isa()));
  EXPECT_EQ(document.at("threads"), usable_cores());
  ASSERT_EQ(document.at("results").size(), 4u);
  for (const auto& result : document["results"]) {
    EXPECT_GT(result.at("median_ms").get<double>(), 0);
    EXPECT_FALSE(result.at("layers").empty());
  }
}

TEST_F(Bench, SaysWhatItCouldNotMeasureAndMeasuresTheRest) {
  if (find_engine("cuda").available().ok) GTEST_SKIP() << "this machine has a GPU";
  const std::string reason = find_engine("cuda").available().reason;
  const std::vector<std::string> command = {"bench",     checkpoint_, "--engine", "cuda,cpu,cudnn,cpu",
                                            "--seconds", "0.01"};
  const Answer text = octet(command);
  EXPECT_EQ(text.code, 2);
  expect_part(text.err, "not all was measured: engine cuda cannot run on this machine (" + reason);
  for (const char* part : {"\ncuda: not measured: engine cuda cannot run", "\ncpu: batch 1: median ",
                           "\ncudnn, other nodes on cuda: not measured: engine cudnn cannot run"})
    expect_part(text.out, part);
  std::vector<std::string> as_json = command;
  as_json.push_back("--json");
  const auto results = nlohmann::json::parse(octet(as_json).out).at("results");
  ASSERT_EQ(results.size(), 3u) << "cpu twice is cpu";
  expect_part(results[0].at("not_measured"), reason);
  EXPECT_FALSE(results[0].contains("batch")) << "no batch runs there";
  EXPECT_GT(results[1].at("median_ms").get<double>(), 0);
  const Answer nowhere = octet({"bench", checkpoint_, "--engine", "cpu", "--svg", path("none/b.svg")});
  expect_refusal(nowhere, 3, {"none"});
  EXPECT_EQ(nowhere.out, "") << "measured before what could not be written was found";
}

TEST_F(Bench, TellsWhatWhoeverIsSentATimeMustKnow) {
  const Answer plain =
      octet({"bench", checkpoint_, "--engine", "cpu", "--kernels", "portable", "--threads", "3", "--seconds", "0.01"});
  EXPECT_EQ(plain.code, 0) << plain.err;
  for (const std::string& part : {" on " + machine_model(), std::string("\noctet "), std::string(", 3 threads, "),
                                  std::string("cpu kernels portable\n")})
    expect_part(plain.out, part);
  const Answer other = octet({"bench", checkpoint_, "--engine", "reference", "--threads", "1", "--seconds", "0.01"});
  expect_part(other.out, ", 1 thread\n");
}

// cudnn takes symmetric_s8 codes only, but nobody's codes change for an engine that runs nothing here anyway.
TEST_F(Bench, AnEngineThatCannotRunHereChoosesNoCodes) {
  if (find_engine("cudnn").available().ok) GTEST_SKIP() << "this machine has a GPU";
  const Answer answer =
      octet({"bench", "--model", "resnet8", "--size", "32", "--engine", "cpu,cudnn", "--seconds", "0.01"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_TRUE(answer.out.starts_with("resnet8 on ")) << answer.out;
  EXPECT_EQ(answer.out.find("symmetric_s8"), std::string::npos) << answer.out;
}

TEST_F(Bench, TakesSparseWeights) {
  for (const auto& [sparsity, shown] : {std::pair{"none", "none"}, {"2:4", "2:4"}}) {
    const Answer bench = octet({"bench", "--model", "resnet8", "--size", "32", "--engine", "cpu", "--seconds", "0.01",
                                "--sparsity", sparsity, "--save", path("random.safetensors")});
    EXPECT_EQ(bench.code, 0) << bench.err;
    EXPECT_EQ(bench.out.starts_with("resnet8, 2:4 on "), sparsity == std::string("2:4")) << bench.out;
    const auto inspected = nlohmann::json::parse(octet({"inspect", path("random.safetensors"), "--json"}).out);
    for (const auto& node : inspected.at("nodes"))
      if (node.at("name") == "layer1.0.conv1") {
        EXPECT_EQ(node.at("sparsity"), shown);
      }
  }
}

TEST_F(Bench, DrawsCurvesOfBatchesAndSizes) {
  const auto drawn = [&](std::vector<std::string> command) {
    command.insert(command.begin(), "bench");
    command.insert(command.end(),
                   {"--engine", "cpu,reference", "--seconds", "0.01", "--svg", path("b.svg"), "--quiet"});
    const Answer answer = octet(command);
    EXPECT_EQ(answer.code, 0) << answer.err;
    return read_file(path("b.svg"));
  };
  const std::string batches = drawn({checkpoint_, "--batch", "1,2,3"});
  expect_part(batches, "images/s");
  expect_part(batches, ">batch<");
  EXPECT_EQ(batches.find("conv1"), std::string::npos);
  const std::string sizes = drawn({"--model", "resnet8", "--size", "32,48"});
  expect_part(sizes, ">height and width<");
  expect_part(sizes, ">resnet8 on ");
  expect_part(drawn({"--model", "resnet8", "--size", "32,48", "--batch", "1,2"}), "reference, 48");
  expect_part(drawn({checkpoint_}), "conv1");  // one batch: its layers
  expect_part(drawn({checkpoint_, "--batch", "1,2", "--layers"}), "conv1");
  expect_refusal(octet({"bench", "--model", "resnet8", "--size", "32,48", "--save", path("one.safetensors")}), 2,
                 {"--save writes one network"});
}

// A minute of measurements, of which some are done after three seconds.
TEST_F(Bench, ThatIsInterruptedGivesWhatItHasMeasured) {
  std::string batches = "1";
  for (int batch = 2; batch <= 600; ++batch) batches += "," + std::to_string(batch);
  const Answer stopped = octet({"bench", checkpoint_, "--engine", "cpu", "--batch", batches, "--seconds", "0.1",
                                "--json", "--svg", path("b.svg")},
                               {.during = [](pid_t child) {
                                 std::this_thread::sleep_for(std::chrono::seconds(3));
                                 ::kill(child, SIGINT);
                               }});
  EXPECT_EQ(stopped.code, 130);
  EXPECT_EQ(stopped.err, "octet: interrupted\n");
  const auto document = nlohmann::json::parse(stopped.out);
  EXPECT_EQ(document.at("interrupted"), true);
  const auto& results = document.at("results");
  ASSERT_GT(results.size(), 0u);
  ASSERT_LT(results.size(), 600u);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].at("batch"), i + 1);
    EXPECT_GT(results[i].at("median_ms").get<double>(), 0);
  }
  const std::string svg = read_file(path("b.svg"));
  size_t dots = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++dots;
  EXPECT_EQ(dots, results.size());
  expect_part(svg, ">batch<");
}

// 13 GB of images do not fit into 8 GB of addresses.
TEST_F(Bench, ABatchTooLargeIsOneBatchsRefusal) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more addresses";
#endif
  if (find_engine("cuda").available().ok) GTEST_SKIP() << "a GPU's driver needs more addresses";
  const Answer answer = octet({"bench", "--model", "resnet8", "--size", "1024", "--engine", "cpu", "--batch",
                               "1,4096,2", "--seconds", "0.01", "--json"},
                              {.address_space_limit = long{8} << 30});
  EXPECT_EQ(answer.code, 3);
  const std::string reason = "this machine has not enough memory for so many images";
  EXPECT_EQ(answer.err, "octet: bench: not all was measured: " + reason + "\n");
  const auto results = nlohmann::json::parse(answer.out).at("results");
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[1], (nlohmann::json{{"engine", "cpu"}, {"size", 1024}, {"batch", 4096}, {"not_measured", reason}}));
  for (const int measured : {0, 2}) {
    EXPECT_EQ(results[measured].at("batch"), measured == 0 ? 1 : 2);
    EXPECT_GT(results[measured].at("median_ms").get<double>(), 0);
  }
}

}  // namespace
}  // namespace octet::test
