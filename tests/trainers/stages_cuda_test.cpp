// Micro-batches of one process on the GPU: passes side by side on two streams, recorded, train what the CPU trains.
#include <gtest/gtest.h>

#include "src/quant/fuse.h"
#include "tests/cuda/gpu.h"
#include "tests/trainers/comparable.h"
#include "tests/trainers/ranks.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using testing_trainers::short_recipe;
using testing_trainers::Training;
using testing_trainers::Variant;

struct MicroBatches : Training {
  MicroBatches(const Folder& folder, const Variant& variant, at::Device device)
      : Training(short_recipe(), folder.path() + "/state.safetensors", variant, device) {
    graph = fuse(testing_trainers::tiny_graph());
    recipe_.precision = variant.precision;
    phase.cuda.deterministic = true;
    phase.cuda.tf32 = false;
    phase.parallel.stages = {"conv1"};
    phase.parallel.micro_batches = 4;
    run();
  }
};

class StagesCuda : public ::testing::TestWithParam<Variant> {};

TEST_P(StagesCuda, TrainTheSameEachTime) {
  OCTET_NEEDS_GPU();
  const Folder folder("stages_cuda");
  const at::Device gpu(at::kCUDA, 0);
  const MicroBatches first(folder, GetParam(), gpu), again(folder, GetParam(), gpu);
  testing_trainers::expect_same_end(first, again);
  if (GetParam().precision != "fp32") return;
  const MicroBatches cpu(folder, GetParam(), at::kCPU);
  EXPECT_LT(testing_trainers::distance(cpu.weights, to_device(first.weights, at::kCPU)), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Networks, StagesCuda,
                         ::testing::Values(Variant{.name = "float"},
                                           Variant{.name = "fp16", .qat = true, .precision = "fp16"},
                                           Variant{.name = "learned", .qat = true, .learn = true, .precision = "fp16"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace octet
