// A network cut into parts, one for each of several processes that train it together.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "src/model/model.h"
#include "src/model/walk_part.h"
#include "trainers/ranks/ranks.h"

namespace octet {

/// The parts of a fused network that is cut behind `layers` (parallel.stages), in their order. Throws Error(usage)
/// naming the layer where there is none of that name, where the order is another, and, with what crosses it, where a
/// cut would part more than one value.
std::vector<GraphPart> stages_of(const Graph& graph, const std::vector<std::string>& layers);

/// WalkMode::shares of a micro-batch, which BatchNorm normalizes by itself. On a GPU by our kernels: LibTorch takes
/// cuDNN's, which needs all multiprocessors at once, so that neither another micro-batch's pass nor what goes to the
/// next stage can run beside it. Null on the CPU.
const GatherShares* batch_norm_of_micro_batches(at::Device device);

/// What a rank takes of each batch: all ranks share it, or the replicas of a network that is cut behind `layers`. Null:
/// all of it is this process's.
struct BatchShare {
  int share = 0, shares = 1;
};
BatchShare batch_share(const Ranks* ranks, const std::vector<std::string>& layers);

/// By rank what belongs to its stage, in one order everywhere.
using Owned = std::vector<std::vector<at::Tensor>>;

/// Whose each tensor of a training is.
class Owners {
 public:
  Owners(const Graph& graph, const std::vector<GraphPart>& parts);

  /// `name`: of a parameter or buffer of the network, or of QuantizedModel::learned_scales(), which are every stage's
  /// in part.
  void add(const std::string& name, const at::Tensor& tensor, Owned& owned) const;

 private:
  std::map<std::string, size_t> part_of_;  // layers and BatchNorms
  std::vector<int64_t> edges_, channels_;  // where each part's scales begin, and all end
};

/// All ranks get what each has made of its own.
void take_from_owners(Ranks& ranks, const Owned& owned);

}  // namespace octet
