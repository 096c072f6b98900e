// Commands that read a checkpoint and pictures: good ones, and every kind of bad one.
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "src/common/files.h"
#include "src/data/loader.h"
#include "src/engine/engine.h"
#include "src/graph/checkpoint.h"
#include "src/graph/zoo.h"
#include "src/quant/convert.h"
#include "src/quant/fuse.h"
#include "src/tensor_files/safetensors.h"
#include "tests/data/pictures.h"
#include "tests/graph/test_graphs.h"
#include "tests/source_dir.h"
#include "tests/tools/program.h"

namespace octet::test {
namespace {

class Checkpoint : public ToolTest {
 protected:
  void SetUp() override {
    checkpoint_ = random_checkpoint();
    write("picture.png", testing::png_bytes(testing::noise(32, 32, 3, 5)));
  }
  Answer run(const std::string& checkpoint, const std::string& image, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"run", checkpoint, image};
    words.insert(words.end(), more.begin(), more.end());
    return octet(words);
  }
  std::string checkpoint_;
};

TEST_F(Checkpoint, RunPrintsFiveClassesAndTheSameNumbersAsJson) {
  const Answer answer = run(checkpoint_, path("picture.png"), {"--json", "--quiet"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.err, "");
  const auto document = nlohmann::json::parse(answer.out);
  ASSERT_EQ(document.at(0).at("top").size(), 5u);
  double last = 1;
  const std::string text = run(checkpoint_, path("picture.png")).out;
  for (const auto& entry : document[0]["top"]) {
    EXPECT_LE(entry.at("probability").get<double>(), last);
    last = entry.at("probability");
    expect_part(text, fmt::format("{:.2f} %", 100 * last));
  }
}

TEST_F(Checkpoint, ALargerPictureIsSeenAsInValidation) {
  const Image large = testing::noise(41, 50, 3, 7);
  write("large.png", testing::png_bytes(large));
  Image centre{32, 32, 3, {}};
  for (int y = 4; y < 36; ++y) {
    const auto row = large.pixels.begin() + (y * 50 + 9) * 3;
    centre.pixels.insert(centre.pixels.end(), row, row + 32 * 3);
  }
  const auto top = [&](const std::string& checkpoint, const std::string& picture) {
    return nlohmann::json::parse(run(checkpoint, path(picture), {"--json", "--quiet"}).out).at(0).at("top");
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

TEST_F(Checkpoint, EnginesAndKernelsGiveTheSameAnswer) {
  const std::string expected = run(checkpoint_, path("picture.png"), {"--engine", "reference"}).out;
  EXPECT_NE(expected, "");
  EXPECT_EQ(run(checkpoint_, path("picture.png")).out, expected);
  EXPECT_EQ(run(checkpoint_, path("picture.png"), {"--engine", "cpu", "--kernels", "portable", "--threads", "1"}).out,
            expected);
}

TEST_F(Checkpoint, TheFallbackIsForCudnn) {
  expect_refusal(run(checkpoint_, path("picture.png"), {"--engine", "cpu", "--fallback", "cuda"}), 2,
                 {"run: --fallback", "cudnn"});
  const std::string expected = run(checkpoint_, path("picture.png"), {"--engine", "cpu"}).out;
  EXPECT_EQ(run(checkpoint_, path("picture.png"), {"--engine", "cpu", "--fallback", "none"}).out, expected);
}

TEST_F(Checkpoint, TheDumpAgreesWithTheWitness) {
  const std::string python = python_with("numpy");
  if (python.empty()) GTEST_SKIP() << "no Python with numpy; name one in OCTET_PYTHON";
  write("second.png", testing::png_bytes(testing::noise(32, 32, 3, 6)));
  const Answer dumped = octet({"run", checkpoint_, path("picture.png"), path("second.png"), "--dump", path("dump")});
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
  const Answer dumped = octet({"run", path("two.safetensors"), path("picture.png"), "--dump", path("dump")});
  ASSERT_EQ(dumped.code, 0) << dumped.err;
  expect_part(dumped.out, path("dump") + ": every node for 1 picture; no classes: it gives '");
  expect_refusal(
      octet({"run", path("two.safetensors"), path("picture.png"), "--dump", path("dump"), "--masks", path(".")}), 2,
      {"gives '"});
  expect_refusal(octet({"run", path("two.safetensors"), path("picture.png"), "--dump", path("dump"), "--top", "3"}), 2,
                 {"--top ranks classes"});
  const std::string python = python_with("numpy");
  if (python.empty()) GTEST_SKIP() << "no Python with numpy; name one in OCTET_PYTHON";
  const Answer answer = command(
      {python, source_dir() + "/tools/verify_checkpoint.py", path("two.safetensors"), "--against", path("dump")});
  EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
  expect_part(answer.out, fmt::format("EQUAL: {} layers, 1 images", graph.nodes.size()));
}

TEST_F(Checkpoint, InspectShowsEveryNode) {
  const Int8Graph graph = read_checkpoint(checkpoint_);
  const std::string text = octet({"inspect", checkpoint_}).out;
  const auto document = nlohmann::json::parse(octet({"inspect", checkpoint_, "--json"}).out);
  ASSERT_EQ(document.at("nodes").size(), graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    expect_part(text, "\n" + graph.nodes[i].name + " ");
    EXPECT_EQ(document["nodes"][i]["name"], graph.nodes[i].name);
    EXPECT_EQ(document["nodes"][i]["weights"], graph.nodes[i].weight.size());
  }
}

TEST_F(Checkpoint, InspectShowsAndChecksSparseWeights) {
  const Graph network = fuse(build_model({.name = "resnet8"}));
  const Int8Graph graph = random_int8_graph(network, {.sparsity = Sparsity::two_of_four}, 1);
  write_checkpoint(path("sparse.safetensors"), graph);
  const Answer answer = octet({"inspect", path("sparse.safetensors")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  expect_part(answer.out, "(format 7)");
  expect_part(answer.out, "2:4 sparse: 9 of 10 layers with ");
  expect_part(answer.out, ", every group of four checked; ");
  expect_part(answer.out, "  2:4 ");
  const auto document = nlohmann::json::parse(octet({"inspect", path("sparse.safetensors"), "--json"}).out);
  for (const auto& node : document.at("nodes"))
    if (node.contains("sparsity")) {
      EXPECT_EQ(node["sparsity"], node["name"] == "conv1" ? "none" : "2:4");
    }
  TensorFile file = read_safetensors(path("sparse.safetensors"));
  std::fill_n(file.tensors.at("linear.weight").bytes.begin(), 3, std::byte{1});
  write_safetensors(path("sparse.safetensors"), file);
  expect_refusal(octet({"inspect", path("sparse.safetensors")}), 3,
                 {"'linear' (linear): 2:4 sparse, but more than two of the weights 0 to 3 are not 0"});
}

TEST_F(Checkpoint, InspectShowsNoControlCharactersOfAFile) {
  Int8Graph graph = every_op_graph();
  graph.name = "evil\x1b[2Jname";
  node_named(graph, "conv1").name = "con\nv\t1\x7f";
  node_named(graph, "lookup").function = "si\x1b]0;title\alu";
  graph.recipe_hash = "0\x1b";
  graph.accuracies = {{"to\xc2\x9bp1 caf\u00e9", 0.5}};
  write_checkpoint(path("evil.safetensors"), graph);
  const Answer answer = octet({"inspect", path("evil.safetensors")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  for (const char* shown :
       {"evil?[2Jname", "\ncon?v?1? ", " con?v?1?  ", "lookup si?]0;title?lu", "recipe 0?", "to?p1 caf\u00e9: 50.00"})
    expect_part(answer.out, shown);
  for (const char c : answer.out) EXPECT_TRUE(c == '\n' || (c != '\x7f' && static_cast<unsigned char>(c) >= ' '));
  const Answer json = octet({"inspect", path("evil.safetensors"), "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.out).at("name"), graph.name);
  EXPECT_EQ(json.out.find('\x1b'), std::string::npos);
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
  expect_shown(run(path("evil.safetensors"), path("picture.png")).out, "shi?[2Jrt ");
  graph.class_names.clear();
  graph.nodes[1].name = "con\x1b[2Jv";
  graph.outputs.push_back(1);
  write_checkpoint(path("two.safetensors"), graph);
  expect_shown(run(path("two.safetensors"), path("picture.png")).err, "octet: ev?[2Jil gives ");
  expect_shown(run(path("two.safetensors"), path("picture.png"), {"--dump", path("dump")}).out, "'con?[2Jv'");
}

TEST_F(Checkpoint, InspectShowsWhatItsNodesAreLike) {
  Int8Graph graph = every_op_graph();
  graph.class_names.clear();
  graph.nodes.push_back(node_named(graph, "max_pool"));  // of the same concat, higher than wide
  graph.nodes.back().name = "high";
  graph.nodes.back().window = {.kernel_h = 3, .kernel_w = 1, .stride_h = 3, .pad = {1, 0, 1, 0}};
  graph.nodes.back().shape = {8, 2, 6};
  graph.outputs.push_back(static_cast<int>(graph.nodes.size()) - 1);
  write_checkpoint(path("every.safetensors"), graph);
  const Answer answer = octet({"inspect", path("every.safetensors")});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const auto document = nlohmann::json::parse(octet({"inspect", path("every.safetensors"), "--json"}).out);
  const auto expect_node = [&](const std::string& name, const std::string& text, const nlohmann::json& attributes) {
    const size_t line = answer.out.find("\n" + name + " ");
    ASSERT_NE(line, std::string::npos) << name;
    expect_part(answer.out.substr(line + 1, answer.out.find('\n', line + 1) - line), text);
    for (const auto& node : document.at("nodes")) {
      if (node["name"] != name) continue;
      for (const auto& [key, value] : attributes.items()) EXPECT_EQ(node.value(key, nlohmann::json()), value) << name;
    }
  };
  const auto window = [](std::vector<int> kernel, std::vector<int> stride, std::vector<int> pad, int dilation) {
    return nlohmann::json{{"kernel", kernel}, {"stride", stride}, {"pad", pad}, {"dilation", {dilation, dilation}}};
  };
  expect_node("conv1", "  3x3 pad 1  ", {{"window", window({3, 3}, {1, 1}, {1, 1, 1, 1}, 1)}, {"groups", 1}});
  expect_node("conv2", "  3x3 pad 1,2,3,2 dilation 2 2 groups  ",
              {{"window", window({3, 3}, {1, 1}, {1, 2, 3, 2}, 2)}, {"groups", 2}});
  expect_node("high", "  3x1/3x1 pad 1x0  ", {{"window", window({3, 1}, {3, 1}, {1, 0, 1, 0}, 1)}});
  expect_node("subsample_pad", "  1x1/2  ", {{"window", window({1, 1}, {2, 2}, {0, 0, 0, 0}, 1)}});
  expect_node("slice", "  channels 3..6  ", {{"first_channel", 3}});
  expect_node("resize", "  times 2x3  ", {{"factor", {2, 3}}});
  expect_node("resize_bilinear", "  times 2x3  ", {{"factor", {2, 3}}});
  expect_node("channel_shuffle", "  4 groups  ", {{"groups", 4}});
  expect_node("depth_to_space", "  times 1x2  ", {{"factor", {1, 2}}});
  expect_node("matmul", "  2 groups transposed  ", {{"groups", 2}, {"transposed", true}});
  expect_node("softmax", "  2 groups  ", {{"groups", 2}});
}

TEST_F(Checkpoint, BenchMeasuresEveryEngineAndBatch) {
  const Answer answer = octet({"bench", checkpoint_, "--batch", "1,3", "--engine", "cpu,reference", "--seconds", "0.01",
                               "--layers", "--json", "--quiet"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.err, "");
  const auto document = nlohmann::json::parse(answer.out);
  EXPECT_EQ(document.at("interrupted"), false);
  ASSERT_EQ(document.at("results").size(), 4u);
  for (const auto& result : document["results"]) {
    EXPECT_GT(result.at("median_ms").get<double>(), 0);
    EXPECT_FALSE(result.at("layers").empty());
  }
}

TEST_F(Checkpoint, BenchSaysWhatItCouldNotMeasureAndMeasuresTheRest) {
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

TEST_F(Checkpoint, InspectSaysForWhichBatchItsKernelsAre) {
  expect_part(octet({"inspect", checkpoint_, "--device", "cpu"}).out, "\nkernels: engine cpu, batch 1\n");
  expect_part(octet({"inspect", checkpoint_, "--device", "cpu", "--batch", "4"}).out,
              "\nkernels: engine cpu, batch 4\n");
  EXPECT_EQ(nlohmann::json::parse(octet({"inspect", checkpoint_, "--batch", "4", "--json"}).out)["kernels_for_batch"],
            4);
}

TEST_F(Checkpoint, BenchTakesSparseWeights) {
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

TEST_F(Checkpoint, BenchDrawsCurvesOfBatchesAndSizes) {
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
TEST_F(Checkpoint, BenchThatIsInterruptedGivesWhatItHasMeasured) {
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

TEST_F(Checkpoint, BadCheckpointsAreNamedAndExitWith3) {
  const std::string good = read_file(checkpoint_), picture = path("picture.png");
  expect_refusal(run(path("none.safetensors"), picture), 3, {"none.safetensors: no such checkpoint"});
  expect_refusal(run(path("."), picture), 3, {"not a run directory", "octet train"});
  for (size_t size : {size_t{0}, size_t{100}, good.size() / 2, good.size() - 1}) {
    write("cut.safetensors", good.substr(0, size));
    expect_refusal(run(path("cut.safetensors"), picture), 3, {"cut.safetensors: "});
  }
  std::mt19937 random(3);
  for (int i = 0; i < 2; ++i) {
    std::string bytes(4096, 0);
    for (char& c : bytes) c = static_cast<char>(random());
    if (i > 0) bytes.replace(0, 8, std::string("\x00\x01\0\0\0\0\0\0", 8));  // a believable header length
    write("hostile.safetensors", bytes);
    expect_refusal(run(path("hostile.safetensors"), picture), 3, {"hostile.safetensors: "});
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
                                          "a classifier gives one output"};
  expect_refusal(run(path("two.safetensors"), path("picture.png")), 2, parts);
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
  expect_refusal(run(path("newer.safetensors"), path("picture.png")), 3,
                 {"newer.safetensors", std::to_string(kCheckpointVersion + 1), "version"});
}

TEST_F(Checkpoint, BadPicturesAndEnginesAreNamed) {
  write("cut.jpg", testing::jpeg_bytes(testing::gradient(32, 32, 3), 90).substr(0, 200));
  write("text.png", "no picture");
  write("small.png", testing::png_bytes(testing::noise(20, 32, 3, 1)));
  expect_refusal(run(checkpoint_, path("none.png")), 3, {"none.png", "No such file"});
  expect_refusal(run(checkpoint_, path("cut.jpg")), 3, {"cut.jpg: "});
  expect_refusal(run(checkpoint_, path("text.png")), 3, {"text.png: "});
  expect_refusal(run(checkpoint_, path("small.png")), 3, {"small.png: 32x20 pixels", "32x32"});
  expect_refusal(run(checkpoint_, path("picture.png"), {"--engine", "abacus"}), 2, {"'abacus'", "cpu, reference"});
  expect_refusal(run(checkpoint_, path("picture.png"), {"--kernels", "neon"}), 2, {"'neon'", "portable"});
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
