// SPDX-License-Identifier: Apache-2.0
// tools/import_torchvision.py: what it says without torch, its recipe as octet reads it, and whole networks where a
// Python has torchvision.
#include "tests/source_dir.h"
#include "tests/tools/program.h"

namespace octet::test {
namespace {

class ImportTorchvision : public ToolTest {
 protected:
  const std::string script_ = source_dir() + "/tools/import_torchvision.py";

  /// The recipe is read before the data, so that missing images are all that is missing.
  void expect_only_images_missing(const std::string& recipe, const std::string& data) const {
    expect_refusal(octet({"train", recipe, "--out", path("run"), "--device", "cpu"}), 3, {"data.train", data});
  }
};

TEST_F(ImportTorchvision, WithoutTorchItSaysWhatItNeeds) {
  const Answer answer = command({"python3", "-I", "-S", script_, "resnet18", "--random"});
  EXPECT_EQ(answer.code, 1);
  expect_part(answer.err, "import_torchvision: No module named 'torch'; run it with a Python that has torch");
  const Answer both = command({"python3", "-I", "-S", script_, "resnet18", "--random", "--weights", "x.pth"});
  EXPECT_EQ(both.code, 2);
  expect_part(both.err, "not allowed with argument");
}

TEST_F(ImportTorchvision, ItsRecipeIsOctets) {
  write("fill.py", R"(import importlib.util, sys
spec = importlib.util.spec_from_file_location("tool", sys.argv[1])
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
for name in tool.ZOO:
    open(name + ".yaml", "w").write(tool.RECIPE.format(
        name=name, version="0.0", source="random weights", recipe=name + ".yaml", data='"no #such: folder"', size=224, resize=256,
        note="  # bilinear in octet, bicubic in torchvision", mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225], model=name,
        key="weights", file='"net.safetensors"'))
)");
  const Answer filled = command({"python3", "-I", "-B", path("fill.py"), script_});
  ASSERT_EQ(filled.code, 0) << filled.err;
  for (const char* name : {"resnet18", "mobilenet_v3_large", "squeezenet1_1"})
    expect_only_images_missing(path(name) + ".yaml", "no #such: folder");
}

TEST_F(ImportTorchvision, NetworksBecomeWeightsOrOnnx) {
  const std::string python = python_with("torch, torchvision, onnx");
  if (python.empty()) GTEST_SKIP() << "needs a Python with torch, torchvision and onnx (OCTET_PYTHON)";
  const auto import = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> words = {python, script_, name, "--out", path(name), "--data", path("nothing")};
    words.insert(words.end(), more.begin(), more.end());
    return command(words);
  };
  const Answer zoo = import("squeezenet1_1", {"--random", "--classes", "7"});
  ASSERT_EQ(zoo.code, 0) << zoo.err;
  EXPECT_TRUE(std::filesystem::exists(path("squeezenet1_1/squeezenet1_1.safetensors")));
  expect_only_images_missing(path("squeezenet1_1/squeezenet1_1.yaml"), path("nothing"));
  const Answer other = import("mnasnet0_5", {"--random", "--classes", "7"});
  ASSERT_EQ(other.code, 0) << other.err;
  expect_only_images_missing(path("mnasnet0_5/mnasnet0_5.yaml"), path("nothing"));
  expect_part(octet({"inspect", path("mnasnet0_5/mnasnet0_5.onnx")}).out, "input [3, 224, 224], output [7, 1, 1]");

  const Answer unknown = import("resnet19", {"--random"});
  EXPECT_EQ(unknown.code, 1);
  expect_part(unknown.err, "torchvision has no classifier 'resnet19'; it has alexnet");
  write("torn.pth", "nothing of PyTorch's");
  const Answer torn = import("squeezenet1_1", {"--weights", path("torn.pth")});
  EXPECT_EQ(torn.code, 1);
  expect_part(torn.err, "torn.pth: not the network's weights");
}

}  // namespace
}  // namespace octet::test
