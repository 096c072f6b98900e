// SPDX-License-Identifier: Apache-2.0
// The command line: help, mistakes in it, and what stdout and stderr carry.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/engine/engine.h"
#include "tests/tools/built.h"
#include "tests/tools/program.h"

namespace octet::test {
namespace {

class Usage : public ToolTest {};

TEST_F(Usage, HelpFitsAScreenAndHasExamplesAndExitCodes) {
  const Answer answer = octet({"--help"});
  EXPECT_EQ(answer.code, 0);
  EXPECT_EQ(answer.err, "");
  int lines = 0;
  std::istringstream text(answer.out);
  for (std::string line; std::getline(text, line); ++lines) EXPECT_LE(line.size(), 120u) << line;
  EXPECT_LE(lines, 40);
  for (const char* part : {"examples:", "octet compare runs/demo", "exit codes: 0 good", "130 interrupted",
                           "Usage: octet [OPTIONS]", "--json", "--set"}) {
    expect_part(answer.out, part);
  }
}

TEST_F(Usage, EveryCommandHasHelp) {
  for (const char* command : {"evaluate", "run", "compare", "bench", "inspect", "doctor"}) {
    const Answer answer = octet({command, "--help"});
    EXPECT_EQ(answer.code, 0) << command;
    expect_part(answer.out, std::string("Usage: octet ") + command);
  }
}

TEST_F(Usage, MistakesNameTheWordTheCureAndExitWith2) {
  expect_refusal(octet({}), 2, {"examples:"});
  expect_refusal(octet({"inspct"}), 2, {"unknown command 'inspct'", "did you mean 'inspect'?", "doctor"});
  expect_refusal(octet({"--quiet"}), 2, {"no command"});
  expect_refusal(octet({"bench", "--modle", "resnet8"}), 2,
                 {"bench: unknown argument '--modle'", "did you mean '--model'?", "octet bench --help"});
  expect_refusal(octet({"bench"}), 2, {"one of CHECKPOINT, --model", "--layers-of"});
  expect_refusal(octet({"bench", "--layers-of", "resnet8", "--engine", "cpu"}), 2, {"--layers-of", "--engine"});
  expect_refusal(octet({"bench", "net.safetensors", "--size", "64"}), 2, {"--size", "CHECKPOINT"});
  expect_refusal(octet({"bench", "net.safetensors", "--sparsity", "2:4"}), 2, {"--sparsity", "CHECKPOINT"});
  expect_refusal(octet({"bench", "--model", "resnet8", "--sparsity", "1:2"}), 2, {"--sparsity", "2:4"});
  expect_refusal(octet({"bench", "--model", "resnet8", "--size", "32", "--engine", "cpu", "--fallback", "cuda"}), 2,
                 {"--fallback", "cudnn"});
  expect_refusal(octet({"inspect"}), 2, {"inspect: CHECKPOINT is required"});
  expect_refusal(octet({"inspect", "x", "--resume"}), 2, {"unknown argument '--resume'"});  // would change nothing
  expect_refusal(octet({"inspect", "net.onnx", "--batch", "4"}), 2, {"--batch is for a checkpoint"});
  expect_refusal(octet({"bench", "--model", "resnet8", "--size", "32", "--engine", "cpu,nosuch"}), 2,
                 {"nosuch", "cpu"});
  expect_refusal(octet({"inspect", "net.yaml"}), 2, {"net.yaml: is a recipe", "--stages N"});
  expect_refusal(octet({"bench", "--model", "resnet19"}), 2, {"resnet19", "resnet18"});
  expect_refusal(octet({"doctor", "--device", "tpu"}), 2, {"--device", "tpu", "cuda"});
  expect_refusal(octet({"doctor", "--device", "cpu"}), 2, {"doctor: --device would change nothing"});
  expect_refusal(octet({"bench", "--model", "resnet8", "--engine", "reference", "--kernels", "avx2"}), 2,
                 {"bench: --kernels", "cpu and cuda"});
}

TEST_F(Usage, CudaIsRefusedWithTheReason) {
  if (find_engine("cuda").available().ok) GTEST_SKIP() << "this machine has a GPU";
  const std::string reason = find_engine("cuda").available().reason;
  expect_refusal(octet({"bench", "--model", "resnet8", "--device", "cuda"}), 2,
                 {"--device cuda:", reason, "--device cpu"});
  expect_refusal(octet({"inspect", "x", "--device", "cuda"}), 2, {"--device cuda:", reason});
  expect_refusal(octet({"bench", "--model", "resnet8", "--engine", "cuda"}), 2, {"engine cuda", reason, "auto"});
  expect_refusal(octet({"bench", "--layers-of", "resnet8"}), 2, {"cuda cannot run here", reason});
}

TEST_F(Usage, DeviceNamesOneOfSeveralGpus) {
  for (const char* wrong : {"cuda:", "cuda:x", "cuda:-1", "cuda1", "cpu:0", "gpu", "cuda:12345678901234567890"})
    expect_refusal(octet({"bench", "--model", "resnet8", "--device", wrong}), 2,
                   {"--device", "'" + std::string(wrong) + "'", "cuda:1"});
  const auto seeing = [&](const char* visible, const std::string& device) {
    return command({"env", std::string("CUDA_VISIBLE_DEVICES=") + visible, octet_program(), "bench", "--model",
                    "resnet8", "--size", "32", "--seconds", "0.01", "--device", device});
  };
  expect_refusal(seeing("4,7", "cuda:2"), 2, {"--device cuda:2", "CUDA_VISIBLE_DEVICES=4,7", "2 GPUs", "cuda:0"});
  expect_refusal(seeing("7", "cuda:1"), 2, {"--device cuda:1", "1 GPU, from cuda:0"});
  const Support cuda = find_engine("cuda").available();
  if (!cuda.ok) {
    expect_refusal(seeing("4,7", "cuda:1"), 2, {"--device cuda:1: " + cuda.reason, "--device cpu"});
    return;
  }
  EXPECT_EQ(octet({"bench", "--model", "resnet8", "--size", "32", "--seconds", "0.01", "--device", "cuda:0"}).code, 0);
  expect_refusal(octet({"bench", "--model", "resnet8", "--device", "cuda:99"}), 2,
                 {"--device cuda:99", "this machine has"});
}

TEST_F(Usage, DeviceCpuLeavesTheGpuOut) {
  expect_refusal(octet({"bench", "--model", "resnet8", "--engine", "cuda", "--device", "cpu"}), 2,
                 {"engine cuda", "--device cpu excludes it"});
  const Answer answer = octet({"bench", "--model", "resnet8", "--seconds", "0.01", "--device", "cpu", "--json"});
  EXPECT_EQ(nlohmann::json::parse(answer.out).at("results").at(0).at("engine"), "cpu") << answer.err;
}

TEST_F(Usage, GeneralFlagsStandOnEitherSideOfTheCommand) {
  EXPECT_EQ(octet({"--json", "doctor"}).out, octet({"doctor", "--json"}).out);
}

TEST_F(Usage, DoctorSaysWhatRunsAndWhyNotTheRest) {
  const Answer answer = octet({"doctor", "--json"});
  EXPECT_EQ(answer.code, 0);
  EXPECT_EQ(answer.err, "");
  const auto document = nlohmann::json::parse(answer.out);
  bool portable = false;
  for (const auto& finding : document.at("findings")) {
    EXPECT_NE(finding.at("detail").get<std::string>(), "") << finding;
    if (finding.at("what") == "cpu kernels portable") portable = finding.at("usable");
  }
  EXPECT_TRUE(portable);
  expect_part(octet({"doctor"}).out, "cpu kernels portable");
}

TEST_F(Usage, AFullStdoutIsAnErrorAndAClosedPipeIsNot) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  const Answer full = octet({"doctor"}, {.stdout_path = "/dev/full"});
  EXPECT_EQ(full.code, 3);
  expect_part(full.err, "stdout: cannot write the result: No space left on device");
  const Answer pipe = command({"sh", "-c", "{ sleep 0.3; '" + octet_program() + "' doctor; echo $? >&2; } | true"});
  EXPECT_EQ(pipe.err, "0\n");
}

TEST_F(Usage, WithoutLibTorchTrainingCommandsSayWhy) {
  if (built_for_training()) GTEST_SKIP() << "this octet has LibTorch";
  for (const char* name : {"train", "calibrate", "analyze", "search", "export"})
    expect_refusal(octet({name, "x.yaml"}), 2, {name, "needs LibTorch", "OCTET_TRAINING=OFF"});
}

}  // namespace
}  // namespace octet::test
