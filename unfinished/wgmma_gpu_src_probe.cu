// Questions to a Hopper GPU, each answered by a line or a small table:
//   shift    may a wgmma descriptor begin at any row of a swizzled tile (base offset 0, or the row)?
//   rates    bytes a clock a multiprocessor that TMA brings from L2: tiled, im2col, bulk, bulk multicast
//   peak     int8 wgmma: share of 4,096 products a clock for shapes and numbers of groups
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/conv2d_int8/cuda/wgmma/maps.h"
#include "kernels/conv2d_int8/cuda/wgmma/ptx.cuh"

using namespace octet;           // NOLINT
using namespace octet::kernels;  // NOLINT

#define CHECK(x)                                                                                   \
  do {                                                                                             \
    cudaError_t e = (x);                                                                           \
    if (e != cudaSuccess) {                                                                        \
      printf("%s:%d %s: %s\n", __FILE__, __LINE__, #x, cudaGetErrorString(e));                     \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

// ---- shift

template <int kWidth>
__global__ void shift_kernel(const uint8_t* x, const uint8_t* w, int rows, int shift, int base_offset, int32_t* out) {
  extern __shared__ uint8_t memory[];
  const uint32_t shared = (shared_address(memory) + 1023) / 1024 * 1024;
  uint8_t* base = memory + (shared - shared_address(memory));
  auto put = [&](uint8_t* to, const uint8_t* from, int n) {
    for (int i = threadIdx.x; i < n * kWidth; i += blockDim.x) {
      const int row = i / kWidth, c = i % kWidth / 16;
      const int swizzled = c ^ (kWidth == 128 ? row % 8 : row / 2 % 4);
      to[row * kWidth + swizzled * 16 + i % 16] = from[i];
    }
  };
  const int x_bytes = (rows * kWidth + 1023) / 1024 * 1024;
  put(base, x, rows);
  put(base + x_bytes, w, 64);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  int32_t sum[8][4];
  uint64_t a = matrix_descriptor<kWidth>() + ((shared + shift * kWidth) >> 4);
  const uint64_t b = matrix_descriptor<kWidth>() + ((shared + x_bytes) >> 4);
  a |= static_cast<uint64_t>(base_offset & 7) << 49;
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kWidth / 32; ++k) multiply_group<true, 64>(sum, a + k * 2, b + k * 2, k > 0);
  wgmma_commit();
  wgmma_wait<0>();
  for (int n = 0; n < 8; ++n)
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(sum[n][i])::"memory");
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      out[(warp * 16 + lane / 4 + i / 2 * 8) * 64 + n * 8 + lane % 4 * 2 + i % 2] = sum[n][i];
}

template <int kWidth>
void shift_test() {
  const int rows = 256;
  std::mt19937 random(1);
  std::vector<uint8_t> x(rows * kWidth), w(64 * kWidth);
  for (auto& v : x) v = random() >> 7;
  for (auto& v : w) v = random() >> 7;
  uint8_t *dx, *dw;
  int32_t* out;
  CHECK(cudaMalloc(&dx, x.size()));
  CHECK(cudaMalloc(&dw, w.size()));
  CHECK(cudaMalloc(&out, 64 * 64 * 4));
  CHECK(cudaMemcpy(dx, x.data(), x.size(), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(dw, w.data(), w.size(), cudaMemcpyHostToDevice));
  const int bytes = rows * kWidth + 64 * kWidth + 3072;
  CHECK(cudaFuncSetAttribute(shift_kernel<kWidth>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  for (const char* mode : {"base offset 0", "base offset row%8", "base offset -row%8", "base offset row/2%8"}) {
    std::string good;
    for (int shift = 0; shift < 40; ++shift) {
      const int offset = !strcmp(mode, "base offset 0") ? 0 : mode[12] == '-' ? -shift : mode[15] == '/' ? shift / 2 : shift;
      CHECK(cudaMemset(out, 0x77, 64 * 64 * 4));
      shift_kernel<kWidth><<<1, 128, bytes>>>(dx, dw, rows, shift, offset, out);
      CHECK(cudaDeviceSynchronize());
      std::vector<int32_t> got(64 * 64);
      CHECK(cudaMemcpy(got.data(), out, got.size() * 4, cudaMemcpyDeviceToHost));
      int wrong = 0;
      for (int m = 0; m < 64; ++m)
        for (int n = 0; n < 64; ++n) {
          int32_t want = 0;
          for (int k = 0; k < kWidth; ++k)
            want += int(int8_t(x[(m + shift) * kWidth + k])) * int(int8_t(w[n * kWidth + k]));
          wrong += want != got[m * 64 + n];
        }
      good += wrong == 0 ? '.' : wrong == 4096 ? 'X' : 'x';
    }
    printf("shift width %d, %-20s shifts 0..39 (. right, x some wrong): %s\n", kWidth, mode, good.c_str());
  }
}

// ---- rates: one thread of each block copies stages round and round, nobody reads them

struct RateArgs {
  CUtensorMap map;
  const uint8_t* bulk;
  int mode, steps, pixels, width, images, size, stride;  ///< mode 0 tiled, 1 im2col 3x3, 2 bulk, 3 bulk multicast
  int stage_bytes, stages, bulk_blocks;
};

__device__ __forceinline__ void copy_bulk_multicast(uint32_t shared, const void* global, uint32_t bytes,
                                                    uint32_t barrier, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::
          "r"(shared),
      "l"(global), "r"(bytes), "r"(barrier), "h"(mask)
      : "memory");
}

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}

__global__ void rate_kernel(const __grid_constant__ RateArgs a, long long* clocks) {
  extern __shared__ uint8_t memory[];
  const uint32_t shared = (shared_address(memory) + 1023) / 1024 * 1024;
  const uint32_t barriers = shared + a.stages * a.stage_bytes;
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2 * a.stages; ++s) barrier_init(barriers + s * 8, 1);
    barrier_init_fence();
  }
  __syncthreads();
  if (a.mode == 3) {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  }
  if (threadIdx.x == 0) {
    const long long start = clock64();
    int item = blockIdx.x;
    const int per_row = a.size, tiles = a.images * a.size * a.size / a.pixels;
    auto issue = [&](int step, int stage) {
      const uint32_t to = shared + stage * a.stage_bytes, bar = barriers + stage * 8;
      if (a.mode == 3) {  // two blocks: each copies half of every stage to both
        barrier_arrive_expecting(bar, a.stage_bytes);
        const uint32_t rank = cluster_rank(), half = a.stage_bytes / 2;
        copy_bulk_multicast(to + rank * half, a.bulk + ((step + blockIdx.x / 2) % a.bulk_blocks) * a.stage_bytes + rank * half,
                            half, bar, 3);
        return;
      }
      barrier_arrive_expecting(bar, a.pixels * a.width);
      const int tile = item % tiles, pixel = tile * a.pixels;
      if (a.mode == 0) {
        copy_box(to, a.map, 0, pixel, bar);
      } else if (a.mode == 1) {
        const int tap = step % 9, image = pixel / (per_row * per_row), in = pixel % (per_row * per_row);
        copy_windows(to, a.map, 0, in % per_row - 1, in / per_row - 1, image, tap % 3, tap / 3, bar);
      } else {
        copy_bulk(to, a.bulk + static_cast<size_t>((step + blockIdx.x) % a.bulk_blocks) * a.pixels * a.width, a.pixels * a.width, bar);
      }
      if (a.mode != 1 || step % 9 == 8) item += gridDim.x;
    };
    for (int s = 0; s < a.stages && s < a.steps; ++s) issue(s, s);
    for (int step = 0; step < a.steps; ++step) {
      const int stage = step % a.stages;
      barrier_wait(barriers + stage * 8, step / a.stages & 1);
      if (a.mode == 3) {  // the other block must have seen this stage too before it is written again
        asm volatile(
            "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
            "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barriers + (a.stages + stage) * 8),
            "r"(cluster_rank() ^ 1)
            : "memory");
        if (step + a.stages < a.steps) barrier_wait(barriers + (a.stages + stage) * 8, step / a.stages & 1);
      }
      if (step + a.stages < a.steps) issue(step + a.stages, stage);
    }
    clocks[blockIdx.x] = clock64() - start;
  }
  if (a.mode == 3) {
    __syncthreads();
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  }
}

void rate(const char* name, RateArgs a, int blocks_per_sm, int cluster) {
  int sms = 0;
  CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  const int blocks = sms * blocks_per_sm;
  const int bytes = a.stages * (a.stage_bytes + 16) + 2048;
  static long long* clocks = nullptr;
  if (!clocks) CHECK(cudaMalloc(&clocks, 4096 * 8));
  CHECK(cudaFuncSetAttribute(rate_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  cudaEvent_t t0, t1;
  CHECK(cudaEventCreate(&t0));
  CHECK(cudaEventCreate(&t1));
  float best = 1e9;
  for (int run = 0; run < 4; ++run) {
    CHECK(cudaEventRecord(t0));
    cudaLaunchConfig_t config{};
    config.gridDim = blocks, config.blockDim = 32, config.dynamicSmemBytes = bytes;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    config.attrs = &attribute, config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, rate_kernel, a, clocks));
    CHECK(cudaEventRecord(t1));
    CHECK(cudaDeviceSynchronize());
    float ms;
    CHECK(cudaEventElapsedTime(&ms, t0, t1));
    if (run > 0) best = std::min(best, ms);
  }
  std::vector<long long> c(blocks);
  CHECK(cudaMemcpy(c.data(), clocks, blocks * 8, cudaMemcpyDeviceToHost));
  std::sort(c.begin(), c.end());
  const double per_block = double(a.mode == 3 ? a.stage_bytes : a.pixels * a.width) * a.steps;
  printf("rate %-44s %8.3f ms  %7.0f GB/s into shared memory  %6.1f bytes/clock/SM (median block)\n", name, best,
         per_block * blocks / best * 1e-6, per_block * blocks_per_sm / c[blocks / 2]);
}

void rates() {
  const int images = 128, size = 28, channels = 128;
  uint8_t* x;
  CHECK(cudaMalloc(&x, size_t(images) * 56 * 56 * 256));
  CHECK(cudaMemset(x, 7, size_t(images) * 56 * 56 * 256));
  Conv2dShape g{.in_c = channels, .in_h = size, .in_w = size, .in_stride = channels, .out_c = 128, .out_h = size,
                .out_w = size, .out_stride = 128, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1};
  RateArgs a{};
  a.images = images, a.size = size, a.steps = 900, a.bulk = x, a.bulk_blocks = 9;
  auto args = [&](int mode, int pixels, int width, int stages) {
    a.mode = mode, a.pixels = pixels, a.width = width, a.stages = stages, a.stage_bytes = (pixels * width + 1023) / 1024 * 1024;
    if (mode == 0) a.map = dense_map(g, x, images, width, pixels);
    if (mode == 1) a.map = window_map(g, x, images, width, pixels);
    return a;
  };
  // 12.8 MB: in L2
  rate("tiled 128 px x 128 B, 6 stages", args(0, 128, 128, 6), 1, 1);
  rate("tiled 128 px x 128 B, 3 stages, 2 blocks", args(0, 128, 128, 3), 2, 1);
  rate("tiled 256 px x 128 B, 4 stages", args(0, 256, 128, 4), 1, 1);
  rate("im2col 3x3 128 px x 128 B, 6 stages", args(1, 128, 128, 6), 1, 1);
  rate("im2col 3x3 128 px x 128 B, 3 stages, 2 blocks", args(1, 128, 128, 3), 2, 1);
  rate("im2col 3x3 256 px x 128 B, 6 stages", args(1, 256, 128, 6), 1, 1);
  rate("im2col 3x3 512 px x 128 B, 3 stages", args(1, 512, 128, 3), 1, 1);
  rate("bulk 16 KB of 144 KB, 6 stages", args(2, 128, 128, 6), 1, 1);
  rate("bulk 32 KB of 288 KB, 4 stages", args(2, 256, 128, 4), 1, 1);
  rate("bulk 16 KB multicast to 2, 6 stages", args(3, 128, 128, 6), 1, 2);
  rate("bulk 32 KB multicast to 2, 4 stages", args(3, 256, 128, 4), 1, 2);
  g.in_c = g.in_stride = 64, g.in_h = g.in_w = g.out_h = g.out_w = a.size = 56;
  rate("tiled 128 px x 64 B (56x56), 12 stages", args(0, 128, 64, 12), 1, 1);
  rate("im2col 3x3 128 px x 64 B (56x56), 12 stages", args(1, 128, 64, 12), 1, 1);
  rate("im2col 3x3 384 px x 64 B (56x56), 4 stages", args(1, 384, 64, 4), 1, 1);
  g.in_c = g.in_stride = 256;  // 103 MB: from memory
  a.steps = 300;
  a.images = 128;
  rate("tiled 128 px x 128 B of 103 MB, 6 stages", args(0, 128, 128, 6), 1, 1);
  rate("tiled 128 px x 128 B of 103 MB, 12 stages", args(0, 128, 128, 12), 1, 1);
}

// ---- peak

template <int kGroups, int kM, int kN, int kWidth>
__global__ void __launch_bounds__(kGroups * 128, 1) peak_kernel(int steps, int32_t* out) {
  extern __shared__ uint8_t memory[];
  const uint32_t shared = (shared_address(memory) + 1023) / 1024 * 1024;
  for (int i = threadIdx.x; i < 160 * 1024 / 4; i += blockDim.x)
    reinterpret_cast<uint32_t*>(memory)[i] = (i * 2654435761u) ^ (i << 13);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const int group = threadIdx.x / 128;
  int32_t sum[kM][kN / 8][4];
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[m][n][i] = 0;
  constexpr int kStage = 32 * 1024;
  for (int step = 0; step < steps; ++step) {
    const uint32_t stage = shared + step % 2 * kStage * 2;
    const uint64_t a = matrix_descriptor<kWidth>() + ((stage + group * kM * 64 * kWidth) >> 4);
    const uint64_t b = matrix_descriptor<kWidth>() + ((stage + kStage) >> 4);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kWidth / 32; ++k)
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kN; n += 128)
          multiply_group<false, kN < 128 ? kN : 128>(sum[m] + n / 8, a + (m * 64 * kWidth + k * 32) / 16,
                                                     b + (n * kWidth + k * 32) / 16, 1);
    wgmma_commit();
    wgmma_wait<1>();
  }
  wgmma_wait<0>();
  int32_t all = 0;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        asm volatile("" : "+r"(sum[m][n][i])::"memory");
        all ^= sum[m][n][i];
      }
  out[blockIdx.x * blockDim.x + threadIdx.x] = all;
}

template <int kGroups, int kM, int kN, int kWidth>
void peak(const char* name) {
  int sms = 0;
  CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  static int32_t* out = nullptr;
  if (!out) CHECK(cudaMalloc(&out, 1 << 20));
  const auto kernel = peak_kernel<kGroups, kM, kN, kWidth>;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 162 * 1024));
  cudaEvent_t t0, t1;
  CHECK(cudaEventCreate(&t0));
  CHECK(cudaEventCreate(&t1));
  float best = 1e9;
  const int steps = 4000;
  for (int run = 0; run < 4; ++run) {
    CHECK(cudaEventRecord(t0));
    kernel<<<sms, kGroups * 128, 162 * 1024>>>(steps, out);
    CHECK(cudaEventRecord(t1));
    CHECK(cudaDeviceSynchronize());
    float ms;
    CHECK(cudaEventElapsedTime(&ms, t0, t1));
    if (run > 0) best = std::min(best, ms);
  }
  const double products = double(sms) * kGroups * kM * 64 * kN * kWidth * steps;
  printf("peak %-52s %8.3f ms %6.0f TOPS\n", name, best, 2 * products / best * 1e-9);
}

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "shift") {
    shift_test<128>();
    shift_test<64>();
  } else if (what == "rates") {
    rates();
  } else if (what == "peak") {
    peak<1, 1, 64, 128>("1 group, 64x64");
    peak<1, 1, 128, 128>("1 group, 64x128");
    peak<1, 2, 128, 128>("1 group, 128x128");
    peak<2, 1, 64, 128>("2 groups, 64x64 each");
    peak<2, 1, 128, 128>("2 groups, 64x128 each");
    peak<2, 2, 64, 64>("2 groups, 128x64 each, rows of 64 bytes");
    peak<2, 2, 64, 128>("2 groups, 128x64 each");
    peak<2, 2, 128, 128>("2 groups, 128x128 each");
    peak<2, 1, 256, 128>("2 groups, 64x256 each");
    peak<2, 1, 128, 64>("2 groups, 64x128 each, rows of 64 bytes");
    peak<4, 1, 128, 128>("4 groups, 64x128 each");
  } else {
    printf("probe shift | rates | peak\n");
    return 2;
  }
  return 0;
}
