// SPDX-License-Identifier: Apache-2.0
// octet quantize --tensors: ready inputs give what the images give that they were made from, and are refused by name.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "kernels/core/quantize.h"
#include "src/base/files.h"
#include "src/base/safetensors.h"
#include "src/data/dataset.h"
#include "src/net/checkpoint.h"
#include "tests/data/images.h"
#include "tests/net/import/zip_bytes.h"
#include "tests/net/onnx/model_builder.h"
#include "tests/tools/program.h"

namespace octet::test {
namespace {

constexpr int kImages = 12, kHeight = 12, kWidth = 20;
constexpr float kMean[] = {0.485f, 0.456f, 0.406f}, kStd[] = {0.229f, 0.224f, 0.225f};
const std::vector<std::string> kAsImages = {"--preset",          "none",  "--mean",
                                            "0.485,0.456,0.406", "--std", "0.229,0.224,0.225"};

std::string network_of(int channels) {
  ModelBuilder model({channels, kHeight, kWidth});
  model.weight("stem.weight", {8, channels, 3, 3});
  model.weight("stem.bias", {8});
  model.weight("head.weight", {4, 8, 1, 1});
  model.node("Conv", {"image", "stem.weight", "stem.bias"}, "a").ints("pads", {1, 1, 1, 1});
  model.node("Relu", {"a"}, "b");
  model.node("Conv", {"b", "head.weight"}, "out");
  return model.bytes("out");
}

/// The network's inputs that the images below are: float32 [kImages, 3, kHeight, kWidth].
std::vector<float> inputs_of_images() {
  std::vector<float> inputs;
  for (int i = 0; i < kImages; ++i) {
    const Image image = testing::noise(kHeight, kWidth, 3, static_cast<uint64_t>(i));
    for (size_t c = 0; c < 3; ++c)
      for (size_t p = c; p < image.pixels.size(); p += 3)
        inputs.push_back(normalize_pixel(image.pixels[p], kMean[c], kStd[c]));
  }
  return inputs;
}

std::string shape_text(int images, int channels) {
  return "(" + std::to_string(images) + ", " + std::to_string(channels) + ", 12, 20)";
}

class QuantizeTensors : public ToolTest {
 protected:
  void SetUp() override {
    write("net.onnx", network_of(3));
    write("inputs.npy", npy_of_floats(shape_text(kImages, 3), inputs_));
  }
  Answer quantize(std::vector<std::string> more) const {
    more.insert(more.begin(), {"quantize", path("net.onnx"), "--device", "cpu", "--force"});
    if (std::find(more.begin(), more.end(), "--out") == more.end())
      more.insert(more.end(), {"--out", path("int8.safetensors")});
    return octet(more);
  }
  Int8Graph made_of(const std::vector<std::string>& source, const std::vector<std::string>& more) const {
    std::vector<std::string> words = source;
    words.insert(words.end(), more.begin(), more.end());
    words.push_back("--json");
    const Answer answer = quantize(words);
    EXPECT_EQ(answer.code, 0) << answer.err;
    if (answer.code != 0) return {};
    const auto document = nlohmann::json::parse(answer.out);
    EXPECT_EQ(document.at("differing_codes"), 0);
    EXPECT_GT(document.at("codes"), 2 * kHeight * kWidth * 12);
    return read_checkpoint(path("int8.safetensors"));
  }
  void expect_refused(const std::string& file, int code, const std::vector<std::string>& parts) const {
    expect_refusal(quantize({"--tensors", path(file), "--out", path("refused.safetensors")}), code, parts);
    EXPECT_FALSE(std::filesystem::exists(path("refused.safetensors")));
  }
  void expect_refused_bytes(const std::string& bytes, const std::vector<std::string>& parts) const {
    write("bad.npz", bytes);
    expect_refused("bad.npz", 3, parts);
  }
  const std::vector<float> inputs_ = inputs_of_images();
};

/// All bytes but those of the preprocessing: pixels of such a checkpoint are the bytes of its input's codes.
TEST_F(QuantizeTensors, GiveTheBytesThatTheirImagesGive) {
  std::filesystem::create_directory(path("images"));
  for (int i = 0; i < kImages; ++i)
    write("images/" + std::to_string(100 + i) + ".png",
          encode_png(testing::noise(kHeight, kWidth, 3, static_cast<uint64_t>(i))));
  const TensorData tensor = float_tensor({kImages, 3, kHeight, kWidth}, inputs_.data());
  write_safetensors(path("named.safetensors"), {{{"image", tensor}, {"labels", float_tensor({1}, kMean)}}, {}});
  write("inputs.npz", zip({{"arr_0.npy", npy_of_floats(shape_text(kImages, 3), inputs_)}}));
  for (const std::string activation : {"affine_u8", "unsigned_u8", "symmetric_s8"}) {
    const std::vector<std::string> how = {"--activation", activation, "--limit", "11", "--repair", "fast"};
    std::vector<std::string> images = {"--images", path("images")};
    images.insert(images.end(), kAsImages.begin(), kAsImages.end());
    const Int8Graph expected = made_of(images, how);
    ASSERT_EQ(expected.preprocessing.fit, Fit::crop);
    for (const char* file : {"inputs.npy", "inputs.npz", "named.safetensors"}) {
      Int8Graph graph = made_of({"--tensors", path(file)}, how);
      EXPECT_EQ(graph.preprocessing.fit, Fit::tensor);
      for (int c = 0; c < 3; ++c) {
        const std::vector<uint8_t> table = input_table(graph, c);
        const int lowest = graph.nodes.front().out.is_signed() ? -128 : 0, first = graph.nodes.front().out.quant_min;
        for (int byte = first - lowest; byte < 256; ++byte)
          ASSERT_EQ(table[static_cast<size_t>(byte)], static_cast<uint8_t>(byte + lowest)) << activation;
      }
      graph.preprocessing = expected.preprocessing;
      write_checkpoint(path("as_images.safetensors"), graph);
      write_checkpoint(path("expected.safetensors"), expected);
      EXPECT_EQ(read_file(path("as_images.safetensors")), read_file(path("expected.safetensors")))
          << file << " " << activation;
    }
  }
}

TEST_F(QuantizeTensors, TakeAnyNumberOfChannelsAndBytes) {
  write("net.onnx", network_of(5));
  std::string bytes;
  for (int i = 0; i < kImages * 5 * kHeight * kWidth; ++i) bytes += static_cast<char>(i * 37 % 251);
  write("inputs.npy", npy("{'descr': '|u1', 'fortran_order': False, 'shape': " + shape_text(kImages, 5) + "}", bytes));
  const Int8Graph graph = made_of({"--tensors", path("inputs.npy")}, {"--method", "minmax"});
  EXPECT_EQ(graph.input_shape(), (Shape{5, kHeight, kWidth}));
  EXPECT_NEAR(graph.nodes.front().out.scale, 250.0 / 255, 1e-6);  // of the values 0 to 250
  EXPECT_EQ(graph.nodes.front().out.zero_point, 0);
}

TEST_F(QuantizeTensors, TheirCheckpointReadsNoImages) {
  made_of({"--tensors", path("inputs.npy")}, {"--method", "minmax"});
  write("image.png", encode_png(testing::noise(kHeight, kWidth, 3, 1)));
  expect_refusal(octet({"run", path("int8.safetensors"), path("image.png"), "--dump", path("dump")}), 2,
                 {"was quantized with tensors (octet quantize --tensors)", "quantize it with --images and --preset"});
  expect_part(octet({"inspect", path("int8.safetensors")}).out, "preprocessing: orientation as stored, tensor, ");
}

TEST_F(QuantizeTensors, OptionsOfImagesAndSecondSourcesAreRefused) {
  const std::string file = path("inputs.npy");
  for (const std::vector<std::string>& option : {std::vector<std::string>{"--preset", "none"},
                                                 {"--fit", "crop"},
                                                 {"--order", "bgr"},
                                                 {"--mean", "0"},
                                                 {"--std", "1"},
                                                 {"--scale", "255"},
                                                 {"--resize", "20"},
                                                 {"--orientation", "exif"}})
    expect_refusal(quantize({"--tensors", file, option[0], option[1]}), 2,
                   {option[0] + ": is for images; --tensors are what the network reads"});
  expect_refusal(quantize({"--tensors", file, "--images", path(".")}), 2,
                 {"--images and --tensors", "leave the other out"});
  expect_refusal(quantize({}), 2, {"what shall it be calibrated on? --images FOLDER with --preset, or --tensors FILE"});
  expect_refusal(quantize({"--images", path("."), "--preset", "none", "--fit", "tensor"}), 2, {"--fit tensor"});
  expect_refusal(quantize({"--tensors", file, "--out", file}), 2, {"inputs.npy is read by this command"});
}

TEST_F(QuantizeTensors, FilesThatCannotServeAreNamed) {
  const std::string good = npy_of_floats(shape_text(kImages, 3), inputs_);
  expect_refused("absent.npz", 3, {"absent.npz: cannot read: No such file"});
  expect_refused_bytes(good.substr(0, good.size() - 5), {"bad.npz: ", "is the file truncated?"});
  expect_refused_bytes("PNG", {"bad.npz: no file of numpy", "np.savez"});
  expect_refused_bytes(zip({{"a.npy", good, 8}}), {"bad.npz: zip: 'a.npy' is compressed; np.savez stores"});
  expect_refused_bytes(zip({{"readme", good}}), {"bad.npz: holds no array; np.savez(FILE, array)"});
  expect_refused_bytes(zip({{"a.npy", good}, {"b.npy", npy_of_floats("(1,)", {1})}}),
                       {"bad.npz: holds 2 arrays ('a', 'b'), none named 'image'", "np.concatenate"});
  expect_refused_bytes(npy_of_floats("(12, 720)", std::vector<float>(8640)),
                       {"bad.npz: [12, 720]; the network reads [N, 3, 12, 20]"});
  expect_refused_bytes(npy_of_floats("(12, 12, 20, 3)", inputs_),
                       {"bad.npz: [12, 12, 20, 3] has its channels last", "np.transpose(array, (0, 3, 1, 2))"});
  expect_refused_bytes(npy_of_floats(shape_text(0, 3), {}), {"bad.npz: [0, 3, 12, 20] holds no input", "100 to 300"});
  expect_refused_bytes(npy_of_floats(shape_text(2, 3), {inputs_.begin(), inputs_.begin() + 1440}),
                       {"2 inputs: some are calibrated on", "100 to 300 are usual"});
  expect_refused_bytes(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 3, 12, 20)}", std::string(17280, 0)),
                       {"bad.npz: F64; the network reads F32 (array.astype(np.float32)), or U8"});
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values = inputs_;
    values[720 + 241] = wrong;
    expect_refused_bytes(npy_of_floats(shape_text(kImages, 3), values), {"bad.npz: input 1 holds ", "at [1, 0, 1]"});
  }
  const size_t count = inputs_.size();
  expect_refused_bytes(npy_of_floats(shape_text(kImages, 3), std::vector<float>(count)),
                       {"the largest magnitude is 0"});
  expect_refused_bytes(npy_of_floats(shape_text(kImages, 3), std::vector<float>(count, 1e6f)),
                       {"the largest magnitude is 1e+06", "normalized as the float network reads them"});
  expect_refused_bytes(npy_of_floats(shape_text(kImages, 3), std::vector<float>(count, 1)),
                       {"all inputs are the same: there is nothing to calibrate on"});
}

}  // namespace
}  // namespace octet::test
