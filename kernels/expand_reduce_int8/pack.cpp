// Which pairs the kernel takes, and their weights as its blocks copy them.
#include <algorithm>
#include <cstring>

#include "kernels/ceil_div.h"
#include "kernels/cuda_shared_memory.h"
#include "kernels/expand_reduce_int8/cuda_expand_reduce_int8.h"
#include "kernels/expand_reduce_int8/layout.h"

namespace octet::kernels {
namespace {

using namespace expand_reduce;

// On a multiprocessor at once: bytes of shared memory, and threads, by about as many registers as each has.
// About: no test holds the compiler to that, and clusters of 16 need not fill a GPC's multiprocessors.
constexpr int kMostBytes = cuda_shared_limit(90), kMostThreads = 768;

bool is_pointwise(const Conv2dShape& g) {
  return g.kernel_h == 1 && g.kernel_w == 1 && g.stride_h == 1 && g.stride_w == 1 && g.pad_h == 0 && g.pad_w == 0 &&
         g.groups == 1 && g.out_h == g.in_h && g.out_w == g.in_w && g.in_stride % 16 == 0 && g.out_stride % 16 == 0;
}

std::vector<uint8_t> pack(const PointwiseConv& conv, const MmaTile& tile) {
  const Conv2dShape& g = conv.shape;
  std::vector<uint8_t> packed = cuda_pack_constants(g, conv.params, conv.weights, g.out_c,
                                                    packed_bytes(g.out_c, g.in_c) - cuda_constants_bytes(g.out_c));
  uint8_t* weight = packed.data() + cuda_constants_bytes(g.out_c);
  for (int k = 0; k < g.out_c; ++k) {
    const int row = mma_weight_row(tile, k % tile.block_n);
    uint8_t* to = weight + static_cast<size_t>(k / tile.block_n * tile.block_n + row) * g.in_c;
    for (int chunk = 0; chunk < g.in_c / 16; ++chunk) {
      std::memcpy(to + mma_swizzle(g.in_c, row, chunk) * 16,
                  conv.weights.weight + static_cast<size_t>(k) * g.in_c + chunk * 16, 16);
    }
  }
  return packed;
}

}  // namespace

std::vector<CudaExpandReduce> cuda_expand_reduce_choices(const ExpandReduce& layers, int images, const CudaGpu& gpu) {
  const Conv2dShape &wide = layers.expand.shape, &narrow = layers.reduce.shape;
  const int cluster = wide.in_c / kNarrow;
  const bool known = cluster == 2 || cluster == 4 || cluster == 8 || cluster == 16;
  const bool fits = wide.in_c == kNarrow * cluster && wide.out_c == kWide * cluster && narrow.in_c == wide.out_c &&
                    narrow.out_c == wide.in_c && narrow.in_stride == wide.out_stride && narrow.in_h == wide.out_h &&
                    narrow.in_w == wide.out_w;
  const CodeOutput& between = layers.expand.params.y;
  const CodeInput& read = layers.reduce.params.x;
  const bool same_codes = read.is_signed == between.is_signed && read.zero_point == between.zero_point;
  const bool plain = !layers.reduce.params.has_residual && !layers.expand.params.y.float_output &&
                     !layers.reduce.params.y.float_output &&
                     (!layers.expand.params.has_residual || wide.residual_stride % 16 == 0);
  if (gpu.capability != 90 || !known || !fits || !same_codes || !plain || !is_pointwise(wide) || !is_pointwise(narrow))
    return {};
  std::vector<CudaExpandReduce> choices;
  for (const int pixels : {16, 32}) {
    const int tiles = ceil_div(images * wide.out_h * wide.out_w, pixels);
    const int on_each = std::min(kMostBytes / Layout(cluster, pixels).end, kMostThreads / kThreads);
    if (tiles * cluster <= on_each * gpu.multiprocessors) choices.push_back({cluster, pixels});
  }
  return choices;
}

std::vector<uint8_t> cuda_expand_reduce_pack(const ExpandReduce& layers) {
  std::vector<uint8_t> packed = pack(layers.expand, kExpandTile);
  packed.resize(reduce_offset(layers.expand.shape));
  const std::vector<uint8_t> reduce = pack(layers.reduce, kReduceTile);
  packed.insert(packed.end(), reduce.begin(), reduce.end());
  return packed;
}

}  // namespace octet::kernels
