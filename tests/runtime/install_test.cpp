// SPDX-License-Identifier: Apache-2.0
// cmake --install, find_package(octet) and the example outside the tree: its logits are those of `octet run`.
#include <algorithm>
#include <cstring>
#include <sstream>

#include "src/base/files.h"
#include "src/base/safetensors.h"
#include "src/net/checkpoint.h"
#include "tests/data/images.h"
#include "tests/source_dir.h"
#include "tests/tools/program.h"
#include "tests/tools/tiny_recipe.h"

namespace octet::test {
namespace {

namespace fs = std::filesystem;

class Install : public ToolTest {
 protected:
  /// The library alone: the program's folder may hold one that LibTorch makes large.
  void SetUp() override {
    good({OCTET_CMAKE, "--install", OCTET_BUILD_DIR, "--component", "runtime", "--prefix", path("prefix")});
  }
  std::string good(const std::vector<std::string>& words) const {
    const Answer answer = command(words);
    EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
    return answer.out;
  }
  Answer configure(const std::string& source, const std::string& more = "-DCMAKE_BUILD_TYPE=Release") const {
    return command(
        {OCTET_CMAKE, "-S", source, "-B", path("build"), "-G", "Ninja", "-DCMAKE_PREFIX_PATH=" + path("prefix"), more});
  }
  /// What `octet run` has at the network's output for an image.
  std::vector<float> logits_of_run(const std::string& checkpoint, const std::string& image) const {
    const Answer answer = octet({"run", checkpoint, image, "--dump", path("dump"), "--quiet"});
    EXPECT_EQ(answer.code, 0) << answer.err;
    const Int8Graph graph = read_checkpoint(checkpoint);
    const TensorFile dump = read_safetensors(path("dump"));
    const TensorData& values = dump.tensors.at("values/" + graph.nodes[graph.outputs[0]].name);
    std::vector<float> logits(graph.classes());
    EXPECT_EQ(values.bytes.size(), logits.size() * sizeof(float));
    std::memcpy(logits.data(), values.bytes.data(), values.bytes.size());
    return logits;
  }
};

TEST_F(Install, TheExampleOutsideTheTreeGivesTheLogitsOfOctetRun) {
  fs::copy(source_dir() + "/tools/example", path("example"));
  const Answer configured = configure(path("example"));
  ASSERT_EQ(configured.code, 0) << configured.out << configured.err;
  good({OCTET_CMAKE, "--build", path("build")});
  const std::string checkpoint = random_checkpoint(), image = path("image.png");
  write("image.png", testing::png_bytes(testing::noise(32, 32, 3, 5)));
  std::istringstream out(good({path("build/classify"), checkpoint, image}));
  std::string name;
  std::getline(out, name);
  std::vector<float> logits;
  for (float logit = 0; out >> logit;) logits.push_back(logit);
  EXPECT_EQ(logits, logits_of_run(checkpoint, image));
  EXPECT_EQ(name, "class " + std::to_string(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  expect_refusal(command({path("build/classify"), checkpoint, path("none.png")}), 3, {"classify: ", "none.png"});
}

TEST_F(Install, HeadersAreCAndTheLibraryShowsItsFunctionsOnly) {
  good({"cc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-xc",
        path("prefix/include/octet/octet.h")});
  std::string library;
  for (const auto& entry : fs::recursive_directory_iterator(path("prefix")))
    if (entry.path().filename() == "liboctet_runtime.so." OCTET_VERSION) library = entry.path();
  ASSERT_NE(library, "");
  std::istringstream symbols(good({"nm", "-D", "--defined-only", library}));
  int functions = 0;
  for (std::string address, kind, name; symbols >> address >> kind >> name; ++functions)
    EXPECT_EQ(name.rfind("octet_", 0), 0u) << name;
  EXPECT_EQ(functions, 11);
  good({"strip", library});
#if !OCTET_WITH_CUDA  // code of the CPU alone
  EXPECT_LT(fs::file_size(library), 4'000'000u);
#endif
}

TEST_F(Install, AnotherVersionOrComponentIsRefused) {
  const auto project = [&](const std::string& wanted) {
    write("CMakeLists.txt",
          "cmake_minimum_required(VERSION 3.24)\nproject(p LANGUAGES CXX)\nfind_package(octet " + wanted + ")\n");
    return configure(path("."));
  };
  EXPECT_EQ(project("0.1 REQUIRED").code, 0);
  const Answer newer = project("0.2 REQUIRED");
  EXPECT_NE(newer.code, 0);
  expect_part(newer.err, "requested version \"0.2\"");
  const Answer training = project("REQUIRED COMPONENTS training");
  EXPECT_NE(training.code, 0);
  expect_part(training.err, "component 'training' is not installed");
  const Answer unknown = project("REQUIRED COMPONENTS abacus");
  EXPECT_NE(unknown.code, 0);
  expect_part(unknown.err, "component 'abacus' is unknown");
}

#if OCTET_WITH_TRAINING
TEST_F(Install, AProgramOutsideTheTreeTrains) {
  good({OCTET_CMAKE, "--install", OCTET_BUILD_DIR, "--component", "training", "--prefix", path("prefix")});
  fs::copy(source_dir() + "/tools/example", path("example"));
  const Answer without = configure(path("example"), "-DOCTET_TORCH_DIR=/none");
  EXPECT_EQ(without.code, 0) << without.err;  // the example trains only if it can
  expect_part(good({"ninja", "-C", path("build"), "-t", "targets", "all"}), "classify: ");
  EXPECT_EQ(good({"ninja", "-C", path("build"), "-t", "targets", "all"}).find("train: "), std::string::npos);
  fs::remove_all(path("build"));
  fs::create_directory(path("needs"));
  write("needs/CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.24)\nproject(p LANGUAGES CXX)\n"
        "find_package(octet REQUIRED COMPONENTS training)\n");
  const Answer needs = configure(path("needs"), "-DOCTET_TORCH_DIR=/none");
  EXPECT_NE(needs.code, 0);
  expect_part(needs.err, "No LibTorch at /none; octet was built with ");
  fs::remove_all(path("build"));

  const Answer configured = configure(path("example"));
  ASSERT_EQ(configured.code, 0) << configured.out << configured.err;
  good({OCTET_CMAKE, "--build", path("build")});
  write("tiny.yaml", kTinyRecipe);
  write("image.png", testing::png_bytes(testing::noise(8, 8, 1, 5)));
  const Answer trained =
      command({path("build/train"), path("tiny.yaml"), path("run"), path("image.png"), "qat.epochs=2"});
  ASSERT_EQ(trained.code, 0) << trained.out << trained.err;
  EXPECT_EQ(trained.err, "");
  for (const char* line : {"float 1: top-1 ", "\nqat 2: top-1 ", "\nqat_graph  top-1 ", "\nreference  top-1 "})
    expect_part(trained.out, line);
  EXPECT_EQ(octet({"compare", path("run"), "--quiet"}).code, 0);
  const std::vector<float> logits = logits_of_run(path("run/int8.safetensors"), path("image.png"));
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  const std::string name = read_checkpoint(path("run/int8.safetensors")).class_names.at(static_cast<size_t>(best));
  EXPECT_TRUE(trained.out.ends_with("\n" + name + "\n")) << trained.out << name;
  expect_refusal(command({path("build/train"), path("none.yaml"), path("other"), path("image.png")}), 3,
                 {"train: ", "none.yaml"});

  // The network that was trained, in float, quantized by the example and by the program: the same bytes.
  EXPECT_EQ(octet({"export", path("run"), "--onnx", path("net.onnx"), "--float", "--quiet"}).code, 0);
  fs::create_directory(path("images"));
  for (int i = 0; i < 12; ++i)
    write("images/" + std::to_string(i) + ".png",
          testing::png_bytes(testing::noise(8, 8, 1, static_cast<uint64_t>(i))));
  const Answer made =
      command({path("build/quantize"), path("net.onnx"), path("made.safetensors"), "none", path("images")});
  ASSERT_EQ(made.code, 0) << made.out << made.err;
  EXPECT_EQ(made.err, "");
  expect_part(made.out, " dB, same class ");
  expect_part(made.out, " codes, equal on all engines; engine ");
  EXPECT_EQ(octet({"quantize", path("net.onnx"), "--images", path("images"), "--preset", "none", "--repair", "fast",
                   "--out", path("int8.safetensors"), "--quiet"})
                .code,
            0);
  EXPECT_EQ(read_file(path("made.safetensors")), read_file(path("int8.safetensors")));
  expect_refusal(command({path("build/quantize"), path("net.onnx"), path("other"), "coco", path("images")}), 2,
                 {"quantize: preset: 'coco' is none of"});
}
#endif

}  // namespace
}  // namespace octet::test
