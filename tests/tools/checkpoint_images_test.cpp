// SPDX-License-Identifier: Apache-2.0
// Checkpoints on a user's images, without a run: compare, evaluate, and what run gives of networks without classes.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/core/quantize.h"
#include "src/base/files.h"
#include "src/base/safetensors.h"
#include "src/net/checkpoint.h"
#include "tests/data/images.h"
#include "tests/tools/program.h"

namespace octet::test {
namespace {

using nlohmann::json;

class CheckpointImages : public ToolTest {
 protected:
  static constexpr int kImages = 6;

  void SetUp() override {
    checkpoint_ = random_checkpoint();
    std::filesystem::create_directory(path("images"));
    for (int i = 0; i < kImages; ++i)
      write(image(i), testing::png_bytes(testing::noise(32 + i, 40, 3, static_cast<uint64_t>(i))));
  }

  static std::string image(int i) { return "images/" + std::to_string(i) + ".png"; }

  json parsed(const std::vector<std::string>& words) const {
    const Answer answer = octet(words);
    EXPECT_EQ(answer.code, 0) << answer.err;
    return json::parse(answer.out, nullptr, /*allow_exceptions=*/false);
  }

  std::string checkpoint_;
};

TEST_F(CheckpointImages, EnginesAreComparedOnThem) {
  const json all = parsed({"compare", checkpoint_, "--images", path("images"), "--device", "cpu", "--json"});
  EXPECT_EQ(all.at("programs"), json({"cpu", "reference"}));
  EXPECT_EQ(all.at("identical"), true);
  EXPECT_EQ(all.at("images"), kImages);
  const json three = parsed({"compare", checkpoint_, "--images", path(image(0)), path(image(1)), path(image(2)),
                             "--limit", "2", "--engine", "reference,cpu", "--json"});
  EXPECT_EQ(three.at("images"), 2);
  EXPECT_EQ(parsed({"compare", checkpoint_, "--images", "3", "--json"}).at("images"), 3);  // random ones

  write("images/broken.png", "no image");
  expect_refusal(octet({"compare", checkpoint_, "--images", path("images")}), 3, {"broken.png"});
  expect_refusal(octet({"compare", checkpoint_, "--images", path("absent")}), 3, {"absent: no such file or folder"});
  expect_refusal(octet({"compare", checkpoint_, "--images", path("images"), "--set", "seed=1"}), 2, {"run directory"});
  expect_refusal(octet({"compare", checkpoint_, "--images", "0"}), 2, {"a number of images is 1 or more"});
}

/// Codes that one engine alone computes wrongly cannot be planted, but an engine alone is no comparison.
TEST_F(CheckpointImages, OneEngineAloneIsNoComparison) {
  expect_refusal(octet({"compare", checkpoint_, "--engine", "cpu"}), 2, {"needs at least two programs"});
}

/// Five images lie in the folder of the class that the network gives them, one in another's. Folders are named so that
/// their order is not that of the classes.
TEST_F(CheckpointImages, AccuracyIsThatOfTheirClassFolders) {
  Int8Graph graph = read_checkpoint(checkpoint_);
  graph.class_names.clear();
  write_checkpoint(checkpoint_, graph);
  const int classes = graph.classes();
  const auto folder = [&](int index) { return "n" + std::to_string(classes - index + 1000); };
  std::string list;
  for (int c = 0; c < classes; ++c) list += folder(c) + "\n";
  write("classes.txt", list);
  for (int i = 0; i < kImages; ++i) {
    const json run = parsed({"run", checkpoint_, path(image(i)), "--json"});
    const int given = run.at(0).at("top").at(0).at("class");
    const int label = i == 2 ? (given + 1) % classes : given;
    std::filesystem::create_directories(path("classes/" + folder(label)));
    std::filesystem::copy(path(image(i)), path("classes/" + folder(label) + "/" + std::to_string(i) + ".png"));
  }
  const std::vector<std::string> command = {"evaluate", checkpoint_, "--images",     path("classes"),
                                            "--json",   "--engine",  "cpu,reference"};
  std::vector<std::string> listed = command;
  listed.insert(listed.end(), {"--classes-file", path("classes.txt")});
  const json report = parsed(listed);
  ASSERT_EQ(report.at("rows").size(), 2u);
  for (const json& row : report.at("rows")) {
    EXPECT_EQ(row.at("images"), kImages);
    EXPECT_NEAR(row.at("top1").get<double>(), 5.0 / kImages, 1e-9) << row.at("name");
  }
  expect_refusal(octet(command), 2, {" classes, ", "--classes-file FILE names the folder of each class"});

  for (int c = 0; c < classes; ++c) graph.class_names.push_back(folder(c));
  write_checkpoint(checkpoint_, graph);  // it knows them itself
  EXPECT_NEAR(parsed(command).at("rows").at(0).at("top1").get<double>(), 5.0 / kImages, 1e-9);

  expect_refusal(octet({"evaluate", checkpoint_}), 2, {"--images FOLDER", "a folder of each class"});
  expect_refusal(octet({"evaluate", checkpoint_, "--images", path("images")}), 3,
                 {"no class folder with an image", "octet quantize"});
  expect_refusal(octet({"evaluate", checkpoint_, "--images", path("classes"), "--all"}), 2, {"the run directory"});
}

/// Outputs of codes are written as the values that they stand for, channels first.
TEST_F(CheckpointImages, RunWritesTheOutputsOfANetworkWithoutClasses) {
  Int8Graph graph = read_checkpoint(checkpoint_);
  graph.class_names.clear();
  graph.outputs.push_back(1);
  write_checkpoint(checkpoint_, graph);
  const Int8Node &logits = graph.nodes[static_cast<size_t>(graph.outputs[0])], &codes = graph.nodes[1];
  const json document = parsed({"run", checkpoint_, path(image(3)), path(image(4)), "--outputs",
                                path("out.safetensors"), "--dump", path("dump.safetensors"), "--json"});
  const TensorFile written = read_safetensors(path("out.safetensors")),
                   dump = read_safetensors(path("dump.safetensors"));
  ASSERT_EQ(written.tensors.size(), 2u);
  const TensorData& values = written.tensors.at(codes.name);
  EXPECT_EQ(written.tensors.at(logits.name).shape, (std::vector<int64_t>{2, logits.shape.c}));
  EXPECT_EQ(written.tensors.at(logits.name).bytes, dump.tensors.at("values/" + logits.name).bytes);
  EXPECT_EQ(values.shape, (std::vector<int64_t>{2, codes.shape.c, codes.shape.h, codes.shape.w}));
  const std::vector<float> reals = to_float(values);
  const std::vector<std::byte>& bytes = dump.tensors.at("codes/" + codes.name).bytes;  // [N, H, W, C]
  ASSERT_EQ(reals.size(), bytes.size());
  const int pixels = codes.shape.h * codes.shape.w, channels = codes.shape.c;
  for (int n = 0; n < 2; ++n)
    for (int c = 0; c < channels; ++c)
      for (int p = 0; p < pixels; ++p) {
        const auto byte = static_cast<uint8_t>(bytes[static_cast<size_t>((n * pixels + p) * channels + c)]);
        const int code = codes.out.is_signed() ? static_cast<int8_t>(byte) : byte;
        ASSERT_EQ(reals[static_cast<size_t>((n * channels + c) * pixels + p)], dequantize(code, codes.out));
      }
  ASSERT_EQ(document.size(), 2u);
  const json& second = document.at(1).at("outputs").at(1);
  EXPECT_EQ(second.at("name"), codes.name);
  EXPECT_EQ(second.at("shape"), json({channels, codes.shape.h, codes.shape.w}));
  const auto half = reals.begin() + static_cast<std::ptrdiff_t>(reals.size() / 2);
  EXPECT_FLOAT_EQ(second.at("max").get<float>(), *std::max_element(half, reals.end()));

  const Answer shown = octet({"run", checkpoint_, path(image(3))});
  EXPECT_EQ(shown.code, 0) << shown.err;
  expect_part(shown.out, "16x32x32");
  expect_part(shown.err, "--outputs FILE.safetensors writes the values");
  expect_refusal(octet({"run", checkpoint_, path(image(3)), "--top", "3"}), 2, {"--top ranks classes"});
  expect_refusal(octet({"run", checkpoint_, path(image(3)), "--masks", path(".")}), 2, {"gives '", "--outputs"});
  expect_refusal(octet({"run", checkpoint_, path(image(3)), "--outputs", path("out.npz")}), 2, {".safetensors"});
  expect_refusal(octet({"run", checkpoint_, path(image(3)), "--outputs", path("no/a.safetensors")}), 3,
                 {"there is no folder"});
}

}  // namespace
}  // namespace octet::test
