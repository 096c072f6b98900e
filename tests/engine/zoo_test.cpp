// Whole networks of the zoo with random weights: every cpu path gives the reference's bytes at every node.
#include <gtest/gtest.h>

#include "src/graph/zoo.h"
#include "src/quant/convert.h"
#include "tests/engine/random_network.h"
#include "tests/engine/same_bytes.h"

namespace octet::test {
namespace {

struct ZooCase {
  const char* model;
  int size;
  double width;
  char shortcut;
};

class Zoo : public testing::TestWithParam<ZooCase> {};

TEST_P(Zoo, SameBytesOnAllPathsInEveryScheme) {
  ModelSpec model{.name = GetParam().model,
                  .input = {3, GetParam().size, GetParam().size},
                  .classes = 10,
                  .shortcut = GetParam().shortcut,
                  .width = GetParam().width};
  const Graph network = build_model(model);
  uint64_t seed = 1;
  for (const auto scheme :
       {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8, ActivationScheme::affine_u8}) {
    const Int8Graph graph = random_int8_graph(network, {.activation = scheme}, ++seed);
    EXPECT_EQ(cpu_difference(graph, random_images(graph, 2, seed), 2), "") << "scheme " << static_cast<int>(scheme);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Zoo,
                         testing::Values(ZooCase{"resnet20", 32, 1.0, 'A'}, ZooCase{"resnet8", 32, 1.0, 'B'},
                                         ZooCase{"mobilenet_v2", 64, 0.35, 'B'}, ZooCase{"squeezenet1_1", 64, 1.0, 'B'},
                                         ZooCase{"efficientnet_b0", 64, 1.0, 'B'},
                                         ZooCase{"mobilenet_v3_large", 64, 1.0, 'B'},
                                         ZooCase{"shufflenet_v2_x0_5", 64, 1.0, 'B'}, ZooCase{"vgg11_bn", 32, 1.0, 'B'},
                                         ZooCase{"small_cnn", 28, 1.0, 'B'}, ZooCase{"unet3", 64, 0.25, 'B'}),
                         [](const auto& info) { return std::string(info.param.model); });

}  // namespace
}  // namespace octet::test
