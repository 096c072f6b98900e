// SPDX-License-Identifier: Apache-2.0
#include "src/train/model/device.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "src/net/zoo.h"

namespace octet {
namespace {

using at::Float32Backend;
using at::Float32Op;
using at::Float32Precision;

TEST(ToDevice, SharesWhatIsThere) {
  ModelSpec spec;
  spec.name = "resnet8";
  const Weights weights = initial_weights(build_model(spec), 1);
  const Weights same = to_device(weights, at::kCPU);
  ASSERT_EQ(same.size(), weights.size());
  for (const auto& [name, tensor] : weights) EXPECT_TRUE(same.at(name).is_same(tensor)) << name;
}

TEST(FullPrecision, RestoresWhatItFound) {
  at::Context& context = at::globalContext();
  const auto precisions = [&] {
    return std::pair(context.float32Precision(Float32Backend::CUDA, Float32Op::CONV),
                     context.float32Precision(Float32Backend::CUDA, Float32Op::MATMUL));
  };
  const auto before = precisions();
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::CONV, Float32Precision::TF32);
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::MATMUL, Float32Precision::TF32);
  {
    const FullPrecision full;
    EXPECT_EQ(precisions(), std::pair(Float32Precision::IEEE, Float32Precision::IEEE));
  }
  EXPECT_EQ(precisions(), std::pair(Float32Precision::TF32, Float32Precision::TF32));
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::CONV, before.first);
  context.setFloat32Precision(Float32Backend::CUDA, Float32Op::MATMUL, before.second);
}

}  // namespace
}  // namespace octet
