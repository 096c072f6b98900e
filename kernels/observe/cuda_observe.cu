#include "kernels/observe/cuda_observe.h"

#include "kernels/observe/cuda_range.cuh"

namespace octet::kernels {
namespace {

struct FollowRange {
  EdgeQuantizer* edge;

  __device__ ObserverBlocks& blocks() const { return edge->blocks; }
  __device__ void take(const ValueRange& batch) const {
    if (!batch.finite) {
      edge->not_finite = 1;
      return;
    }
    const RunningRange range = follow(edge->range, batch, edge->averaging);
    edge->range = range;
    edge->qparams = qparams_of_range(range.lo, range.hi, edge->qparams, edge->affine != 0);
  }
};

}  // namespace

void cuda_observe(const ObservedValues& values, EdgeQuantizer* edge, CudaStream stream) {
  if (values.count == 0) return;
  launch_range(values, FollowRange{edge}, stream);
  check_launch("observe");
}

}  // namespace octet::kernels
