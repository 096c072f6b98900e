// SPDX-License-Identifier: Apache-2.0
// Every network of the zoo, those of the shipped recipes at their shapes in every activation scheme: cuda gives the
// reference's bytes at every node for batches of 1, 2 and 7; for 128 the cpu engine's, and the reference's for some
// images of them.
#include <gtest/gtest.h>

#include <tuple>

#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "tests/cuda/gpu.h"
#include "tests/engine/cuda_zoo_cases.h"
#include "tests/engine/random_network.h"
#include "tests/engine/same_bytes.h"

namespace octet::test {
namespace {

constexpr int kFew = 7, kMany = 128;

/// Images of the batch of 128 that the reference runs, too, each on a core of its own: the batch of 7, then one from
/// the middle and the last.
const std::vector<int> kChecked = {0, 1, 2, 3, 4, 5, 6, 63, 127};

class CudaZoo : public testing::TestWithParam<std::tuple<CudaZooCase, ActivationScheme>> {};

/// Those of `batch` images.
template <typename T>
std::vector<T> some_of(const std::vector<T>& all, int batch, const std::vector<int>& images) {
  const long size = static_cast<long>(all.size()) / batch;
  std::vector<T> some;
  for (const int image : images) some.insert(some.end(), all.begin() + size * image, all.begin() + size * (image + 1));
  return some;
}

Trace some_of(const Trace& trace, int batch, const std::vector<int>& images) {
  Trace some;
  for (const auto& bytes : trace.nodes) some.nodes.push_back(some_of(bytes, batch, images));
  for (const auto& bytes : trace.outputs) some.outputs.push_back(some_of(bytes, batch, images));
  return some;
}

/// The trace of the first `count` of `batch` images.
Trace first_images(const Trace& trace, int batch, int count) {
  return some_of(trace, batch, {kChecked.begin(), kChecked.begin() + count});
}

TEST_P(CudaZoo, SameBytes) {
  OCTET_NEEDS_GPU();
  const auto& [zoo, scheme] = GetParam();
  const Graph network = build_model(
      {.name = zoo.model, .input = zoo.input, .classes = zoo.classes, .shortcut = zoo.shortcut, .folded = zoo.folded});
  const Int8Graph graph = random_int8_graph(network, {.activation = scheme}, 1);
  const std::vector<uint8_t> images = random_images(graph, kMany, 1);
  const auto cuda = find_engine("cuda").compile(graph, {.max_batch = kMany});
  const int checked = static_cast<int>(kChecked.size());
  const Trace reference = trace(*find_engine("reference").compile(graph, {.max_batch = checked}), graph,
                                some_of(images, kMany, kChecked), checked);
  for (const int batch : {kFew, 2, 1}) {
    const Trace first = first_images(reference, checked, batch);
    EXPECT_EQ(difference(graph, first, trace(*cuda, graph, images, batch)), "") << "batch " << batch;
    EXPECT_TRUE(outputs_of(*cuda, graph, images, batch) == first.outputs) << "batch " << batch << ", as a graph";
  }

  const auto cpu = find_engine("cpu").compile(graph, {.max_batch = kMany});
  const Trace expected = trace(*cpu, graph, images, kMany), actual = trace(*cuda, graph, images, kMany);
  EXPECT_EQ(difference(graph, reference, some_of(actual, kMany, kChecked)), "") << "some of batch 128";
  EXPECT_EQ(difference(graph, expected, actual), "") << "batch 128";
  EXPECT_TRUE(outputs_of(*cuda, graph, images, kMany) == expected.outputs);
}

std::string case_name(const testing::TestParamInfo<CudaZoo::ParamType>& info) {
  const CudaZooCase& zoo = std::get<0>(info.param);
  return std::string(zoo.model) + "_" + zoo.shortcut + "_" + std::to_string(zoo.input.h) + "_scheme" +
         std::to_string(static_cast<int>(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(Models, CudaZoo,
                         testing::Combine(testing::ValuesIn(kCudaInEveryScheme),
                                          testing::Values(ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8,
                                                          ActivationScheme::affine_u8)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Rest, CudaZoo,
                         testing::Combine(testing::ValuesIn(kCudaInOneScheme),
                                          testing::Values(ActivationScheme::affine_u8)),
                         case_name);

}  // namespace
}  // namespace octet::test
