// SPDX-License-Identifier: Apache-2.0
// Commands that read a checkpoint and images: good ones, and every kind of bad one.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <random>

#include "src/base/files.h"
#include "src/base/safetensors.h"
#include "src/data/loader.h"
#include "src/net/checkpoint.h"
#include "src/net/zoo.h"
#include "tests/data/images.h"
#include "tests/source_dir.h"
#include "tests/tools/program.h"

namespace octet::test {
namespace {

class Checkpoint : public ToolTest {
 protected:
  void SetUp() override {
    checkpoint_ = random_checkpoint();
    write("image.png", testing::png_bytes(testing::noise(32, 32, 3, 5)));
  }
  Answer run(const std::string& checkpoint, const std::string& image, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"run", checkpoint, image};
    words.insert(words.end(), more.begin(), more.end());
    return octet(words);
  }
  std::string checkpoint_;
};

TEST_F(Checkpoint, RunPrintsFiveClassesAndTheSameNumbersAsJson) {
  const Answer answer = run(checkpoint_, path("image.png"), {"--json", "--quiet"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.err, "");
  const auto document = nlohmann::json::parse(answer.out);
  ASSERT_EQ(document.at(0).at("top").size(), 5u);
  double last = 1;
  const std::string text = run(checkpoint_, path("image.png")).out;
  for (const auto& entry : document[0]["top"]) {
    EXPECT_LE(entry.at("probability").get<double>(), last);
    last = entry.at("probability");
    expect_part(text, fmt::format("{:.2f} %", 100 * last));
  }
}

TEST_F(Checkpoint, ALargerImageIsSeenAsInValidation) {
  const Image large = testing::noise(41, 50, 3, 7);
  write("large.png", testing::png_bytes(large));
  Image centre{32, 32, 3, {}};
  for (int y = 4; y < 36; ++y) {
    const auto row = large.pixels.begin() + (y * 50 + 9) * 3;
    centre.pixels.insert(centre.pixels.end(), row, row + 32 * 3);
  }
  const auto top = [&](const std::string& checkpoint, const std::string& name) {
    return nlohmann::json::parse(run(checkpoint, path(name), {"--json", "--quiet"}).out).at(0).at("top");
  };
  write("centre.png", testing::png_bytes(centre));
  EXPECT_EQ(top(checkpoint_, "large.png"), top(checkpoint_, "centre.png"));
  expect_part(run(checkpoint_, path("large.png")).err,
              "note: " + path("large.png") + ": 50x41 pixels; the network reads 32x32");
  EXPECT_EQ(run(checkpoint_, path("centre.png")).err, "");

  Int8Graph graph = read_checkpoint(checkpoint_);
  graph.preprocessing.resize = 36;
  write_checkpoint(path("resizes.safetensors"), graph);
  const Transform validation{.channels = 3, .height = 32, .width = 32, .resize = 36};
  write("resized.png", testing::png_bytes(evaluation_image(large, validation)));
  EXPECT_EQ(top(path("resizes.safetensors"), "large.png"), top(checkpoint_, "resized.png"));
  EXPECT_NE(top(path("resizes.safetensors"), "large.png"), top(checkpoint_, "large.png"));
  EXPECT_EQ(run(path("resizes.safetensors"), path("large.png")).err, "");
}

TEST_F(Checkpoint, RunTurnsImagesAsTheCheckpointSaysAndSaysWhereItDoesNot) {
  const Image seen = testing::noise(32, 32, 3, 7);
  Image stored{32, 32, 3, {}};
  for (size_t i = 32 * 32; i-- > 0;)
    stored.pixels.insert(stored.pixels.end(), &seen.pixels[i * 3], &seen.pixels[i * 3] + 3);
  write("seen.png", testing::png_bytes(seen));
  write("stored.png", testing::png_bytes(stored));
  write("turned.png", testing::png_with_exif(testing::png_bytes(stored), testing::exif_bytes(3, true)));
  const auto top = [&](const std::string& checkpoint, const std::string& name) {
    return nlohmann::json::parse(run(checkpoint, path(name), {"--json", "--quiet"}).out).at(0).at("top");
  };
  ASSERT_NE(top(checkpoint_, "seen.png"), top(checkpoint_, "stored.png"));
  EXPECT_EQ(top(checkpoint_, "turned.png"), top(checkpoint_, "stored.png"));
  expect_part(run(checkpoint_, path("turned.png")).err,
              "note: " + path("turned.png") + ": read as stored, not turned as its EXIF data says (orientation 3)");
  Int8Graph graph = read_checkpoint(checkpoint_);
  graph.preprocessing.exif_orientation = true;
  write_checkpoint(path("turns.safetensors"), graph);
  EXPECT_EQ(top(path("turns.safetensors"), "turned.png"), top(checkpoint_, "seen.png"));
  EXPECT_EQ(run(path("turns.safetensors"), path("turned.png")).err, "");
  expect_part(octet({"inspect", path("turns.safetensors")}).out, "preprocessing: orientation exif, resize 0");
  expect_part(octet({"inspect", checkpoint_}).out, "preprocessing: orientation as stored, resize 0");
  std::vector<uint16_t> dark(32 * 32, 4000);
  write("dark.png", testing::png_of_16_bits(32, 32, dark));
  expect_part(
      run(checkpoint_, path("dark.png")).err,
      "note: " + path("dark.png") + ": a 16-bit PNG whose values use 12 bits: it is nearly black; multiply them by 16");
}

TEST_F(Checkpoint, EnginesAndKernelsGiveTheSameAnswer) {
  const std::string expected = run(checkpoint_, path("image.png"), {"--engine", "reference"}).out;
  EXPECT_NE(expected, "");
  EXPECT_EQ(run(checkpoint_, path("image.png")).out, expected);
  EXPECT_EQ(run(checkpoint_, path("image.png"), {"--engine", "cpu", "--kernels", "portable", "--threads", "1"}).out,
            expected);
}

TEST_F(Checkpoint, TheFallbackIsForCudnn) {
  expect_refusal(run(checkpoint_, path("image.png"), {"--engine", "cpu", "--fallback", "cuda"}), 2,
                 {"run: --fallback", "cudnn"});
  const std::string expected = run(checkpoint_, path("image.png"), {"--engine", "cpu"}).out;
  EXPECT_EQ(run(checkpoint_, path("image.png"), {"--engine", "cpu", "--fallback", "none"}).out, expected);
}

TEST_F(Checkpoint, TheDumpAgreesWithTheWitness) {
  const std::string python = python_with("numpy");
  if (python.empty()) GTEST_SKIP() << "no Python with numpy; name one in OCTET_PYTHON";
  write("second.png", testing::png_bytes(testing::noise(32, 32, 3, 6)));
  const Answer dumped = octet({"run", checkpoint_, path("image.png"), path("second.png"), "--dump", path("dump")});
  EXPECT_EQ(dumped.code, 0) << dumped.err;
  const std::string witness = source_dir() + "/tools/verify_checkpoint.py";
  const Answer answer = command({python, witness, checkpoint_, "--against", path("dump")});
  EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
  expect_part(answer.out, "EQUAL");
  expect_part(answer.out, "2 images");
}

TEST_F(Checkpoint, ANetworkOfSeveralOutputsIsDumpedForTheWitness) {
  Int8Graph graph = read_checkpoint(checkpoint_);
  graph.class_names.clear();
  graph.outputs.push_back(1);  // codes
  write_checkpoint(path("two.safetensors"), graph);
  const Answer dumped = octet({"run", path("two.safetensors"), path("image.png"), "--dump", path("dump")});
  ASSERT_EQ(dumped.code, 0) << dumped.err;
  expect_part(dumped.err, "wrote " + path("dump") + ": what every node gives for 1 image");
  const std::string python = python_with("numpy");
  if (python.empty()) GTEST_SKIP() << "no Python with numpy; name one in OCTET_PYTHON";
  const Answer answer = command(
      {python, source_dir() + "/tools/verify_checkpoint.py", path("two.safetensors"), "--against", path("dump")});
  EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
  expect_part(answer.out, fmt::format("EQUAL: {} layers, 1 images", graph.nodes.size()));
}

TEST_F(Checkpoint, NoMessageShowsControlCharactersOfAFile) {
  const auto expect_shown = [](const std::string& text, const std::string& part) {
    expect_part(text, part);
    for (const char c : text) EXPECT_TRUE(c == '\n' || (c != '\x7f' && static_cast<unsigned char>(c) >= ' ')) << text;
  };
  Int8Graph graph = read_checkpoint(checkpoint_);
  graph.name = "ev\x1b[2Jil";
  graph.class_names.assign(static_cast<size_t>(graph.classes()), "shi\x1b[2Jrt");
  write_checkpoint(path("evil.safetensors"), graph);
  expect_shown(run(path("evil.safetensors"), path("image.png")).out, "shi?[2Jrt ");
  graph.class_names.clear();
  graph.nodes[1].name = "con\x1b[2Jv";
  graph.outputs.push_back(1);
  write_checkpoint(path("two.safetensors"), graph);
  expect_shown(run(path("two.safetensors"), path("image.png"), {"--masks", path(".")}).err, "octet: ev?[2Jil gives ");
  expect_shown(run(path("two.safetensors"), path("image.png")).out, "con?[2Jv ");
}

TEST_F(Checkpoint, BadCheckpointsAreNamedAndExitWith3) {
  const std::string good = read_file(checkpoint_), name = path("image.png");
  expect_refusal(run(path("none.safetensors"), name), 3, {"none.safetensors: no such checkpoint"});
  expect_refusal(run(path("."), name), 3, {"not a run directory", "octet train"});
  for (size_t size : {size_t{0}, size_t{100}, good.size() / 2, good.size() - 1}) {
    write("cut.safetensors", good.substr(0, size));
    expect_refusal(run(path("cut.safetensors"), name), 3, {"cut.safetensors: "});
  }
  std::mt19937 random(3);
  for (int i = 0; i < 2; ++i) {
    std::string bytes(4096, 0);
    for (char& c : bytes) c = static_cast<char>(random());
    if (i > 0) bytes.replace(0, 8, std::string("\x00\x01\0\0\0\0\0\0", 8));  // a believable header length
    write("hostile.safetensors", bytes);
    expect_refusal(run(path("hostile.safetensors"), name), 3, {"hostile.safetensors: "});
    expect_refusal(octet({"inspect", path("hostile.safetensors")}), 3, {"hostile.safetensors: "});
  }
}

TEST_F(Checkpoint, WhatIsNoClassifierIsShownAndNotRunForClasses) {
  Int8Graph graph = read_checkpoint(checkpoint_);
  graph.class_names.clear();
  const std::string first = graph.nodes[1].name, logits = graph.nodes[graph.outputs[0]].name;
  graph.outputs.push_back(1);
  write_checkpoint(path("two.safetensors"), graph);
  const std::vector<std::string> parts = {"'" + logits + "' float32 [10, 1, 1]", "'" + first + "' codes [16, 32, 32]",
                                          "no classes of pixels"};
  expect_refusal(run(path("two.safetensors"), path("image.png"), {"--masks", path(".")}), 2, parts);
  const Answer inspected = octet({"inspect", path("two.safetensors")});
  EXPECT_EQ(inspected.code, 0) << inspected.err;
  expect_part(inspected.out, "outputs " + logits + " " + first);
  const Answer measured =
      octet({"bench", path("two.safetensors"), "--engine", "cpu", "--batch", "1", "--seconds", "0.1"});
  EXPECT_EQ(measured.code, 0) << measured.err;
}

TEST_F(Checkpoint, AnotherFormatVersionSaysWhatToDo) {
  TensorFile file = read_safetensors(checkpoint_);
  auto document = nlohmann::json::parse(file.metadata.at("octet"));
  document["format_version"] = kCheckpointVersion + 1;
  file.metadata["octet"] = document.dump();
  write_safetensors(path("newer.safetensors"), file);
  expect_refusal(run(path("newer.safetensors"), path("image.png")), 3,
                 {"newer.safetensors", std::to_string(kCheckpointVersion + 1), "version"});
}

TEST_F(Checkpoint, BadImagesAndEnginesAreNamed) {
  write("cut.jpg", testing::jpeg_bytes(testing::gradient(32, 32, 3), 90).substr(0, 200));
  write("text.png", "no image");
  write("small.png", testing::png_bytes(testing::noise(20, 32, 3, 1)));
  expect_refusal(run(checkpoint_, path("none.png")), 3, {"none.png", "No such file"});
  expect_refusal(run(checkpoint_, path("cut.jpg")), 3, {"cut.jpg: "});
  expect_refusal(run(checkpoint_, path("text.png")), 3, {"text.png: "});
  expect_refusal(run(checkpoint_, path("small.png")), 3, {"small.png: 32x20 pixels", "32x32"});
  expect_refusal(run(checkpoint_, path("image.png"), {"--engine", "abacus"}), 2, {"'abacus'", "cpu, reference"});
  expect_refusal(run(checkpoint_, path("image.png"), {"--kernels", "neon"}), 2, {"'neon'", "portable"});
}

TEST_F(Checkpoint, AFullDiskNamesTheFileAndKeepsTheOldOne) {
  const std::string old = read_file(checkpoint_);
  const Answer answer =
      octet({"bench", "--model", "resnet8", "--size", "64", "--save", checkpoint_}, {.file_size_limit = 8192});
  expect_refusal(answer, 3, {"random.safetensors: cannot write: File too large"});
  EXPECT_EQ(read_file(checkpoint_), old);
  for (const auto& entry : std::filesystem::directory_iterator(path(".")))
    EXPECT_EQ(entry.path().string().find(".tmp."), std::string::npos) << entry.path();
}

}  // namespace
}  // namespace octet::test
