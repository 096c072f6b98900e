// SPDX-License-Identifier: Apache-2.0
// torch.save's files: real ones, files built by hand, and everything hostile refused by name.
#include "src/net/import/pytorch_file.h"
#include "src/net/import/pickle.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <utility>

#include "src/base/files.h"
#include "src/net/zoo.h"
#include "tests/base/damage.h"
#include "tests/error_of.h"
#include "tests/net/import/torch_zip.h"
#include "tests/net/import/zip_bytes.h"
#include "tests/source_dir.h"

namespace octet {
namespace {

using std::string_literals::operator""s;
using test::crc;
using test::raw;
using test::zip;

TensorFile parse(const std::string& bytes) {
  return parse_pytorch_file(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "test.pth");
}

std::string refusal(const std::string& bytes) {
  return error_of([&] { parse(bytes); });
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string text(const std::string& value) { return "X"s + raw(static_cast<uint32_t>(value.size())) + value; }
std::string number(int32_t value) { return "J"s + raw(value); }

std::string tuple(const std::vector<int32_t>& values) {
  std::string bytes = "(";
  for (const int32_t value : values) bytes += number(value);
  return bytes + "t";
}

struct TensorPickle {
  std::string storage = "FloatStorage", key = "0";
  int32_t stored = 6, offset = 0;
  std::vector<int32_t> sizes = {2, 3}, strides = {3, 1};
};

/// The instructions that rebuild a tensor.
std::string pickle(const TensorPickle& t) {
  return "ctorch._utils\n_rebuild_tensor_v2\n(("s + text("storage") + "ctorch\n" + t.storage + "\n" + text(t.key) +
         text("cpu") + number(t.stored) + "tQ" + number(t.offset) + tuple(t.sizes) + tuple(t.strides) + "\x89" +
         "ccollections\nOrderedDict\n)RtR";
}

/// A pickle of {name: value}.
std::string dict_of(const std::string& name, const std::string& value) {
  return "\x80\x02}("s + text(name) + value + "u.";
}

std::string floats(std::vector<float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::string zip_of(const std::string& pickle_bytes) {
  return zip({{"archive/data.pkl", pickle_bytes}, {"archive/data/0", floats({0, 1, 2, 3, 4, 5})}});
}

std::string tensor_refusal(const TensorPickle& t) { return refusal(zip_of(dict_of("w", pickle(t)))); }

TEST(PytorchFile, ReadsLibTorchsOwnZip) {
  const TensorFile file = parse(from_hex(kTorchZip));
  ASSERT_EQ(file.tensors.size(), 4u);
  EXPECT_EQ(file.tensors.at("w").shape, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(to_float(file.tensors.at("w")), (std::vector<float>{0, 3, 1, 4, 2, 5}));  // transposed in the file
  EXPECT_EQ(to_float(file.tensors.at("tail")), (std::vector<float>{4, 5}));
  EXPECT_EQ(file.tensors.at("h").dtype, DType::f16);
  EXPECT_EQ(to_float(file.tensors.at("h")), (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(file.tensors.at("n").shape, std::vector<int64_t>{1});
  EXPECT_EQ(file.tensors.at("n").bytes[0], std::byte{7});
}

TEST(PytorchFile, ReadsAZipBuiltByHand) {
  const std::string bytes = zip_of(dict_of("w", pickle({})));
  EXPECT_EQ(to_float(parse(bytes).tensors.at("w")), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  for (const char* key :
       {"state_dict", "model_state_dict", "model", "net", "state_dict_ema", "model_ema", "ema_state_dict", "ema"}) {
    const std::string inner = "}("s + text("v") + pickle({.offset = 3, .sizes = {3}, .strides = {1}}) + "u";
    EXPECT_EQ(to_float(parse(zip_of(dict_of(key, inner))).tensors.at("v")), (std::vector<float>{3, 4, 5})) << key;
  }
  // A state_dict with attributes (_metadata) and a Parameter.
  const std::string parameter = "ctorch._utils\n_rebuild_parameter\n("s + pickle({}) + "\x88}tR";
  const std::string attributes =
      "\x80\x02"s + "ccollections\nOrderedDict\n)R(" + text("p") + parameter + "u}(" + text("_metadata") + "}ub.";
  EXPECT_EQ(parse(zip_of(attributes)).tensors.at("p").shape, (std::vector<int64_t>{2, 3}));
}

TEST(PytorchFile, ReadsWeightsTwoKeysDeep) {
  const std::string inner = "}("s + text("v") + pickle({.offset = 3, .sizes = {3}, .strides = {1}}) + "u";
  const std::string outer = "}("s + text("updates") + number(7) + text("state_dict") + inner + "u";
  EXPECT_EQ(to_float(parse(zip_of(dict_of("ema", outer))).tensors.at("v")), (std::vector<float>{3, 4, 5}));
}

TEST(PytorchFile, SaysWhichOfTwoSetsOfWeightsIsRead) {
  const auto holding = [](int32_t offset) {
    return "}("s + text("v") + pickle({.offset = offset, .sizes = {1}, .strides = {1}}) + "u";
  };
  const std::string both = "\x80\x02}("s + text("state_dict_ema") + holding(2) + text("state_dict") + holding(5) + "u.";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(to_float(parse(zip_of(both)).tensors.at("v")), std::vector<float>{5});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "note: test.pth: the weights of 'state_dict' are taken, not those of 'state_dict_ema'\n");
}

TEST(PytorchFile, ARefusalListsTheKeys) {
  const std::string network = "}("s + text("v") + pickle({}) + text("w") + pickle({}) + "u";
  const std::string message =
      refusal(zip_of("\x80\x02}("s + text("epoch") + number(3) + text("generator") + network + "u."));
  EXPECT_EQ(message,
            "test.pth: holds no tensors under names, but the keys 'epoch', 'generator' (2 tensors); save the weights "
            "alone: torch.save(model.state_dict(), FILE)");
  std::string items;
  for (int i = 0; i < 15; ++i) items += text("k" + std::to_string(i)) + number(i);
  EXPECT_NE(refusal(zip_of("\x80\x02}("s + items + "u.")).find("'k11' and 3 more;"), std::string::npos);
}

struct RealFile {
  const char* file;
  const char* model;
  size_t tensors;
  uint32_t crc;        ///< of all tensors' bytes in the order of their names
  float linear_bias0;  ///< both computed with Python's pickle and numpy
};

TEST(PytorchFile, ReadsTheOlderFormat) {
  if (shared_data().empty()) GTEST_SKIP() << "no shared data on this machine";
  for (const RealFile& real : {RealFile{"resnet20-12fca82f.th", "resnet20", 97, 0xb3882bbe, 0.19355906546115875f},
                               RealFile{"resnet32-d509ac18.th", "resnet32", 157, 0xe4827b8c, 0.1762789636850357f},
                               RealFile{"resnet56-4bfd9763.th", "resnet56", 277, 0x31245f6d, 0.13465537130832672f}}) {
    const TensorFile file = read_pytorch_file(shared_data() + "/weights/" + real.file);
    EXPECT_EQ(file.tensors.size(), real.tensors);
    std::string all;
    for (const auto& [name, tensor] : file.tensors) {
      all.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    }
    EXPECT_EQ(crc(all), real.crc) << real.file;
    EXPECT_EQ(to_float(file.tensors.at("module.linear.bias"))[0], real.linear_bias0);
    // Names and shapes are those of the zoo, with the prefix of DataParallel.
    size_t batch_counters = 0;
    for (const auto& [name, tensor] : file.tensors) batch_counters += name.ends_with("num_batches_tracked") ? 1 : 0;
    const std::vector<ParameterSpec> specs = parameters(build_model({.name = real.model, .shortcut = 'A'}));
    EXPECT_EQ(specs.size() + batch_counters, file.tensors.size());
    for (const ParameterSpec& spec : specs) {
      EXPECT_EQ(file.tensors.at("module." + spec.name).shape,
                std::vector<int64_t>(spec.shape.begin(), spec.shape.end()));
    }
  }
}

TEST(PytorchFile, RefusesCodeByItsName) {
  EXPECT_NE(refusal(zip_of("\x80\x02"
                           "cos\nsystem\n(X\x02\0\0\0lstR."s))
                .find("'os.system'"),
            std::string::npos);
  EXPECT_NE(refusal(zip_of("\x80\x04\x8c\x08"
                           "builtins\x8c\x04"
                           "eval\x93."s))
                .find("'builtins.eval'"),
            std::string::npos);
  EXPECT_NE(refusal(zip_of("\x80\x02"
                           "cnumpy.core.multiarray\nscalar\n."s))
                .find("'numpy.core.multiarray.scalar'"),
            std::string::npos);
  EXPECT_NE(refusal(zip_of("\x80\x02(i"s)).find("instruction 0x69"), std::string::npos);
}

TEST(PytorchFile, RefusesTensorsOutsideTheirStorage) {
  EXPECT_EQ(tensor_refusal({}), "");
  EXPECT_NE(tensor_refusal({.offset = 1}).find("'w' points outside its storage"), std::string::npos);
  EXPECT_NE(tensor_refusal({.strides = {4, 1}}).find("outside"), std::string::npos);
  EXPECT_NE(tensor_refusal({.sizes = {2, 4}}).find("outside"), std::string::npos);
  EXPECT_NE(tensor_refusal({.offset = -1}).find("damaged"), std::string::npos);
  EXPECT_NE(tensor_refusal({.sizes = {-2, 3}}).find("no number"), std::string::npos);
  EXPECT_NE(tensor_refusal({.sizes = {6}}).find("damaged"), std::string::npos);
  EXPECT_NE(tensor_refusal({.stored = 7}).find("needs 28 bytes, the file has 24"), std::string::npos);
  EXPECT_NE(tensor_refusal({.storage = "DoubleStorage"}).find("needs 48 bytes"), std::string::npos);
  EXPECT_NE(tensor_refusal({.key = "1"}).find("no entry 'archive/data/1'"), std::string::npos);
  // A stride of 0 would make gigabytes from nothing.
  EXPECT_NE(tensor_refusal({.sizes = {1 << 30, 1 << 30}, .strides = {0, 0}}).find("repeats"), std::string::npos);
  EXPECT_NE(tensor_refusal({.sizes = {7}, .strides = {0}}).find("repeats"), std::string::npos);
}

/// PyTorch does not look at the stride of a dimension of one element. The sanitizers see the overflow of adding it up.
TEST(PytorchFile, TheStrideOfOneElementMayBeAnything) {
  const std::string huge = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"s;  // 2^63 - 1
  const auto strided = [&](int32_t rows, const std::string& strides) {
    return dict_of("w", "ctorch._utils\n_rebuild_tensor_v2\n(("s + text("storage") + "ctorch\nFloatStorage\n" +
                            text("0") + text("cpu") + number(6) + "tQ" + number(0) + tuple({rows, 1, 3}) + "(" +
                            strides + "t\x89" + "ccollections\nOrderedDict\n)RtR");
  };
  EXPECT_EQ(to_float(parse(zip_of(strided(2, number(3) + huge + number(1)))).tensors.at("w")),
            (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(to_float(parse(zip_of(strided(1, huge + huge + number(2)))).tensors.at("w")),
            (std::vector<float>{0, 2, 4}));
  EXPECT_NE(refusal(zip_of(strided(2, huge + huge + number(1)))).find("points outside its storage"), std::string::npos);
  EXPECT_NE(refusal(zip_of(strided(3, huge + number(1) + number(1)))).find("points outside its storage"),
            std::string::npos);
}

TEST(PytorchFile, BoundsTheSumOfAllCopies) {
  std::string items;
  for (int i = 0; i < 4000; ++i) items += text(std::to_string(i)) + (i == 0 ? pickle({}) + "q\x01" : "h\x01");
  EXPECT_NE(refusal(zip_of("\x80\x02}("s + items + "u.")).find("repeats its storage"), std::string::npos);
}

TEST(PytorchFile, RefusesDamagedZips) {
  const std::string good = zip_of(dict_of("w", pickle({})));
  std::string bad = good;
  bad[bad.find("archive/data/0") + 14 + 5] ^= 1;
  EXPECT_NE(refusal(bad).find("checksum of 'archive/data/0'"), std::string::npos);
  EXPECT_NE(refusal(zip({{"archive/data.pkl", "x", 8}})).find("is compressed"), std::string::npos);
  EXPECT_NE(refusal(zip({{"readme.txt", "x"}})).find("not one of torch.save"), std::string::npos);
  EXPECT_NE(refusal(zip({{"a/data.pkl", "N."}, {"a/byteorder", "big"}})).find("big-endian"), std::string::npos);
  EXPECT_NE(refusal(zip({{"a/data.pkl", "N."}})).find("no dictionary"), std::string::npos);
  EXPECT_NE(refusal(zip({{"a/data.pkl", "}."}})).find("no tensors"), std::string::npos);
  EXPECT_NE(refusal("hello, this is no weights file").find("not a file of torch.save"), std::string::npos);
}

TEST(PytorchFile, EveryTruncationIsRefused) {
  const std::string bytes = from_hex(kTorchZip);
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::vector<std::byte> prefix(reinterpret_cast<const std::byte*>(bytes.data()),
                                        reinterpret_cast<const std::byte*>(bytes.data()) + length);
    EXPECT_NE(error_of([&] { parse_pytorch_file(prefix.data(), prefix.size(), "x"); }), "") << length;
  }
}

TEST(PytorchFile, TruncatedOlderFilesAreRefused) {
  if (shared_data().empty()) GTEST_SKIP() << "no shared data on this machine";
  const std::string bytes = read_file(shared_data() + "/weights/resnet20-12fca82f.th");
  for (size_t length = 0; length < bytes.size(); length += 1009) {
    EXPECT_NE(refusal(bytes.substr(0, length)), "") << length;
  }
  EXPECT_NE(refusal(bytes.substr(0, bytes.size() - 1)).find("truncated"), std::string::npos);
}

TEST(PytorchFile, RandomDamageNeverCrashes) {
  EXPECT_GT(test::refused_of_damaged(from_hex(kTorchZip), 3, refusal), 1500);
}

/// Damage behind the checksum: the pickle itself.
TEST(Pickle, RandomDamageNeverCrashes) {
  const std::string good = dict_of("w", pickle({}));
  std::mt19937 random(4);
  for (int round = 0; round < 5000; ++round) {
    std::string damaged = good;
    for (int flips = 0; flips < 1 + round % 3; ++flips)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    refusal(zip_of(damaged));
  }
}

TEST(Pickle, ReadsPlainValues) {
  const Pickle list = parse_pickle(
      "\x80\x02](N\x88J\xfd\xff\xff\xff\x8a\x06\0\0\0\0\0\x01G\x3f\xf8\0\0\0\0\0\0K\x01\x85"
      "e."s,
      "x");
  const PickleValue& root = list.at(list.root);
  ASSERT_EQ(root.kind, PickleValue::Kind::list);
  ASSERT_EQ(root.items.size(), 6u);
  EXPECT_EQ(list.item(root, 0).kind, PickleValue::Kind::none);
  EXPECT_EQ(list.item(root, 1).integer, 1);
  EXPECT_EQ(list.item(root, 2).integer, -3);
  EXPECT_EQ(list.item(root, 3).integer, int64_t{1} << 40);
  EXPECT_EQ(list.item(root, 4).real, 1.5);
  EXPECT_EQ(list.item(list.item(root, 5), 0).integer, 1);
}

/// Names are taken whole: nothing that ends, begins or continues as an allowed one.
TEST(Pickle, RefersToNothingElse) {
  const auto refers_to = [](const std::string& module, const std::string& name) {
    return error_of([&] { parse_pickle("c" + module + "\n" + name + "\n.", "x"); });
  };
  for (const char* type : {"Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool"})
    EXPECT_EQ(refers_to("torch", type + "Storage"s), "");
  EXPECT_EQ(refers_to("torch._utils", "_rebuild_tensor_v2"), "");
  EXPECT_EQ(refers_to("collections", "OrderedDict"), "");
  const std::pair<const char*, const char*> others[] = {{"os", "FloatStorage"},
                                                        {"evil.torch", "FloatStorage"},
                                                        {"torch.cuda", "FloatStorage"},
                                                        {"torch", "MyLongStorage"},
                                                        {"torch", "FloatStorages"},
                                                        {"torch", "Storage"},
                                                        {"torch", "Float"},
                                                        {"evil.collections", "OrderedDict"},
                                                        {"collections", "OrderedDicts"},
                                                        {"os", "system"},
                                                        {"torch._utils", "_rebuild_tensor_v3"}};
  for (const auto& [module, name] : others)
    EXPECT_NE(refers_to(module, name).find(module + "."s + name), std::string::npos) << module << " " << name;
}

TEST(Pickle, DeepNestingAndCyclesAreHarmless) {
  // 500,000 lists within each other, then a list that holds itself: no recursion, no leak.
  EXPECT_EQ(
      error_of([] { parse_pickle("\x80\x02"s + std::string(500'000, ']') + std::string(499'999, 'a') + ".", "x"); }),
      "");
  EXPECT_EQ(error_of([] {
              parse_pickle(
                  "\x80\x02]q\x01h\x01"
                  "a."s,
                  "x");
            }),
            "");
  EXPECT_NE(error_of([] { parse_pickle("\x80\x02"s + std::string(3'000'000, '('), "x"); }).find("more values"),
            std::string::npos);
  EXPECT_NE(error_of([] { parse_pickle("\x80\x02"s + std::string(3'000'000, 'N'), "x"); }).find("more values"),
            std::string::npos);
}

TEST(Pickle, RefusesBrokenPrograms) {
  const auto broken = [](const std::string& program) { return error_of([&] { parse_pickle(program, "x"); }); };
  EXPECT_NE(broken("."s).find("empty stack"), std::string::npos);
  EXPECT_NE(broken("(K\x01."s).find("within a container"), std::string::npos);
  EXPECT_NE(broken("h\x05."s).find("never stored"), std::string::npos);
  EXPECT_NE(broken("K\x01K\x02"
                   "a."s)
                .find("expects a list"),
            std::string::npos);
  EXPECT_NE(broken("}(K\x01u."s).find("key without a value"), std::string::npos);
  EXPECT_NE(broken("t."s).find("no mark"), std::string::npos);
  EXPECT_NE(broken("K\x01)R."s).find("no function"), std::string::npos);
  EXPECT_NE(broken("N"s).find("truncated"), std::string::npos);
  EXPECT_NE(broken("X\xff\xff\xff\xff"s).find("truncated"), std::string::npos);
  EXPECT_NE(broken("\x8a\x09\1\1\1\1\1\1\1\1\1."s).find("64 bits"), std::string::npos);
  EXPECT_NE(broken("\x80\x09."s).find("protocol 9"), std::string::npos);
}

}  // namespace
}  // namespace octet
