// SPDX-License-Identifier: Apache-2.0
// octet compare --against onnxruntime: with a stand-in for ONNX Runtime, and with the real one where a Python has it.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/source_dir.h"
#include "tests/tools/program.h"

namespace octet::test {
namespace {

using nlohmann::json;

class CompareAgainst : public ToolTest {
 protected:
  ~CompareAgainst() override {
    for (const char* name : {"OCTET_PYTHON", "FAKE_NODES", "FAKE_FAILS"}) ::unsetenv(name);
    if (!python_.empty()) ::setenv("OCTET_PYTHON", python_.c_str(), 1);
  }

  /// A program for OCTET_PYTHON.
  void set_python(const std::string& script) const {
    write("python", "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(path("python"), std::filesystem::perms::owner_all);
    ::setenv("OCTET_PYTHON", path("python").c_str(), 1);
  }

  /// A Python with numpy and the stand-in for ONNX Runtime.
  void set_fake(const std::string& numpy, const std::string& checkpoint) const {
    write("nodes.json", octet({"inspect", checkpoint, "--json"}).out);
    ::setenv("FAKE_NODES", path("nodes.json").c_str(), 1);
    set_python("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH='" + source_dir() + "/tests/tools/fake_onnxruntime' exec '" +
               numpy + "' \"$@\"");
  }

  Answer against(const std::string& target, const std::string& runtimes, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"compare", target, "--against", runtimes, "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return octet(words);
  }

  const std::string python_ = std::getenv("OCTET_PYTHON") != nullptr ? std::getenv("OCTET_PYTHON") : "";
};

TEST_F(CompareAgainst, WhatAnotherRuntimeGivesIsCountedNodeByNode) {
  const std::string checkpoint = random_checkpoint();
  const std::string numpy = python_with("numpy");
  if (numpy.empty()) GTEST_SKIP() << "needs a Python with numpy";
  set_fake(numpy, checkpoint);
  const Answer answer = against(checkpoint, "onnxruntime", {"--json", "--images", "3"});
  ASSERT_EQ(answer.code, 0) << answer.err;  // counted, no promise
  expect_part(answer.err, "onnxruntime: ONNX Runtime 0.0");
  const json found = json::parse(answer.out);
  EXPECT_EQ(found.at("programs"), json({"cpu", "onnxruntime"}));
  EXPECT_EQ(found.at("exact"), json({false}));
  EXPECT_EQ(found.at("images"), 3);
  EXPECT_TRUE(found.at("identical").is_null());
  const json nodes = json::parse(octet({"inspect", checkpoint, "--json"}).out).at("nodes");
  long hidden = 0, differing = 0;
  for (size_t n = 0; n < nodes.size(); ++n) {
    const json& layer = found.at("layers").at(n);
    hidden += layer.at("differing").at(0).is_null();
    if (n > 0 && !layer.at("differing").at(0).is_null()) differing += layer.at("differing").at(0).get<long>();
  }
  EXPECT_EQ(found.at("layers").at(0).at("codes"), 3 * 3 * 32 * 32);
  EXPECT_EQ(found.at("layers").at(0).at("differing"), json::array({0}));  // the image's codes, which it computes
  EXPECT_EQ(hidden, 0);
  EXPECT_GT(differing, 0);
  EXPECT_GT(found.at("layers").at(1).at("largest_lsb").at(0), 10);

  const Answer text = against(checkpoint, "onnxruntime", {"--engine", "reference,cpu", "--images", "2"});
  EXPECT_EQ(text.code, 0) << text.err;
  expect_part(text.out, "codes that differ from reference");
  expect_part(text.out, "onnxruntime (inexact)");
  expect_part(text.out, "identical: 0 of ");
  expect_part(text.out, "over 2 images; onnxruntime promises no equal codes: ");
}

TEST_F(CompareAgainst, WhatIsMissingIsSaidWithItsCure) {
  const std::string checkpoint = random_checkpoint();
  const std::string numpy = python_with("numpy");
  const char* cure = "V/bin/pip install onnxruntime, then OCTET_PYTHON=V/bin/python octet compare";
  ::setenv("OCTET_PYTHON", "/no/such/python", 1);
  expect_refusal(against(checkpoint, "onnxruntime"), 3,
                 {"--against onnxruntime: /no/such/python cannot be started: No such file", cure});
  for (const char* script : {"exit 1", "echo 'I am no interpreter'; cat >/dev/null"}) {
    set_python(script);
    expect_refusal(against(checkpoint, "onnxruntime"), 3,
                   {path("python") + " is no Python 3.8 or newer that works; OCTET_PYTHON must name one", cure});
  }
  set_python("printf 'python 3.11\\n'; exit 1");
  expect_refusal(against(checkpoint, "onnxruntime"), 3, {path("python") + " has ended early", cure});
  set_python("exec python3 -I -S \"$@\"");  // no packages
  expect_refusal(against(checkpoint, "onnxruntime"), 3, {"No module named ", cure});
  if (numpy.empty()) GTEST_SKIP() << "the rest needs a Python with numpy";
  set_fake(numpy, checkpoint);
  ::setenv("FAKE_FAILS", "load", 1);
  expect_refusal(against(checkpoint, "onnxruntime"), 3, {"onnxruntime says: failed no such operator"});
  ::setenv("FAKE_FAILS", "run", 1);
  expect_refusal(against(checkpoint, "onnxruntime"), 3, {"onnxruntime says: failed out of memory"});
  ::setenv("FAKE_FAILS", "size", 1);
  expect_refusal(against(checkpoint, "onnxruntime"), 3,
                 {"gives 21504 bytes of 'input/QuantizeLinear' for 8 images, octet has 24576"});
}

TEST_F(CompareAgainst, WrongWordsAreRefused) {
  expect_refusal(against("net.safetensors", "tensorrt"), 2, {"--against", "tensorrt", "onnxruntime_unfused"});
  expect_refusal(against("net.safetensors", "onnxruntime"), 3, {"net.safetensors: no such checkpoint"});
  expect_refusal(against(random_checkpoint(), "onnxruntime", {"--checkpoint", "other.safetensors"}), 2,
                 {"--checkpoint", "run directory"});
}

TEST_F(CompareAgainst, OnnxRuntimeGivesNearlyTheSameCodes) {
  const std::string python = python_with("numpy, onnxruntime");
  if (python.empty()) GTEST_SKIP() << "needs a Python with onnxruntime (OCTET_PYTHON)";
  ::setenv("OCTET_PYTHON", python.c_str(), 1);
  const std::string checkpoint = random_checkpoint();
  const Answer answer = against(checkpoint, "onnxruntime,onnxruntime_unfused", {"--json"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const json found = json::parse(answer.out);
  // Fused, it rounds biases to int32: measured 3.5 % of the codes differ, by at most 3; unfused 0.07 %, by at most 2.
  const auto expect_near = [&](size_t runtime, double share, int largest) {
    long codes = 0, differing = 0;
    for (const json& layer : found.at("layers")) {
      if (layer == found.at("layers").back()) continue;  // logits
      codes += layer.at("codes").get<long>();
      differing += layer.at("differing").at(runtime).get<long>();
      EXPECT_LE(layer.at("largest_lsb").at(runtime), largest) << layer;
    }
    EXPECT_LT(static_cast<double>(differing), share * static_cast<double>(codes)) << differing << " of " << codes;
  };
  expect_near(0, 0.1, 5);
  expect_near(1, 0.002, 2);
  EXPECT_EQ(found.at("layers").at(0).at("differing"), json({0, 0}));

  const Answer exported = octet({"export", checkpoint, "--onnx", path("net.onnx")});
  ASSERT_EQ(exported.code, 0) << exported.err;
  const Answer file = against(path("net.onnx"), "onnxruntime,onnxruntime_unfused", {"--json"});
  ASSERT_EQ(file.code, 0) << file.err;
  EXPECT_EQ(json::parse(file.out).at("verdict"), found.at("verdict"));  // the file is what the checkpoint becomes
}

}  // namespace
}  // namespace octet::test
