// Times every tile of the wgmma families, and the choices of mma, on ResNet-50's convolutions.
//   bench BATCH FIRST_LAYER STATE_FILE CSV [names to skip, comma-separated]
// Before each measurement the state file holds "layer name", so that a script that had to kill this knows what hung.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "kernels/conv2d_int8/cuda/mma/mma.h"
#include "kernels/conv2d_int8/cuda/wgmma/held.h"
#include "kernels/conv2d_int8/cuda/wgmma/wgmma.h"
#include "src/cuda/device.h"
#include "src/cuda/memory.h"
#include "src/cuda/stream.h"

using namespace octet;           // NOLINT
using namespace octet::kernels;  // NOLINT

struct Layer {
  int count, in_c, size, out_c, kernel, stride;
  bool residual;
  double cudnn;  // us, batch 128
};
const Layer kLayers[] = {
    {3, 64, 56, 64, 3, 1, false, 78},      {3, 64, 56, 256, 1, 1, true, 183},    {1, 64, 56, 256, 1, 1, false, 86},
    {2, 256, 56, 64, 1, 1, false, 42},     {1, 256, 56, 128, 1, 1, false, 55},   {1, 128, 56, 128, 3, 2, false, 26},
    {4, 128, 28, 512, 1, 1, true, 92},     {3, 512, 28, 128, 1, 1, false, 20},   {3, 128, 28, 128, 3, 1, false, 25},
    {1, 256, 56, 512, 1, 2, false, 51},    {1, 512, 28, 256, 1, 1, false, 33},   {1, 256, 28, 256, 3, 2, false, 22},
    {6, 256, 14, 1024, 1, 1, true, 48},    {5, 1024, 14, 256, 1, 1, false, 14},  {5, 256, 14, 256, 3, 1, false, 21},
    {1, 512, 28, 1024, 1, 2, false, 32},   {1, 1024, 14, 512, 1, 1, false, 23},  {1, 512, 14, 512, 3, 2, false, 26},
    {3, 512, 7, 2048, 1, 1, true, 27},     {2, 2048, 7, 512, 1, 1, false, 14},   {2, 512, 7, 512, 3, 1, false, 25},
    {1, 1024, 14, 2048, 1, 2, false, 22},  {1, 64, 56, 64, 1, 1, false, 38},
};

struct Candidate {
  CudaConv2d conv;
  const CudaConvFamily* family;
  std::string key;  // of packed data
};

DeviceBuffer random_buffer(size_t bytes, const Stream& stream) {
  static const std::vector<uint8_t> random = [] {
    std::mt19937 generator(1);
    std::vector<uint8_t> b(size_t{1} << 22);
    for (uint8_t& v : b) v = static_cast<uint8_t>(generator() >> 11);
    return b;
  }();
  static const DeviceBuffer source = [&] {
    DeviceBuffer b(random.size(), "random");
    copy_to_device(b.data(), random.data(), random.size(), stream.get());
    return b;
  }();
  DeviceBuffer buffer(bytes, "benchmark");
  for (size_t at = 0; at < bytes; at += random.size())
    cudaMemcpyAsync(buffer.data() + at, source.data(), std::min(random.size(), bytes - at), cudaMemcpyDeviceToDevice, stream.get());
  stream.wait("filling");
  return buffer;
}

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const int batch = std::atoi(argv[1]), first = std::atoi(argv[2]);
  const std::string skip = std::string(",") + (argc > 5 ? argv[5] : "") + ",";
  FILE* csv = fopen(argv[4], "a");
  const Stream stream;
  const CudaGpu gpu{gpu_status().capability, gpu_status().multiprocessors};
  double total_best = 0, total_mma = 0, total_floor = 0;
  for (int index = first; index < static_cast<int>(sizeof(kLayers) / sizeof(kLayers[0])); ++index) {
    const Layer& l = kLayers[index];
    Conv2dShape s;
    s.in_c = s.in_stride = l.in_c, s.in_h = s.in_w = l.size, s.out_c = s.out_stride = s.residual_stride = l.out_c;
    s.out_h = s.out_w = (l.size + l.stride - 1) / l.stride;
    s.kernel_h = s.kernel_w = l.kernel, s.stride_h = s.stride_w = l.stride, s.pad_h = s.pad_w = (l.kernel - 1) / 2;
    std::mt19937 random(2);
    std::vector<int8_t> weight(static_cast<size_t>(s.out_c) * s.kernel_h * s.kernel_w * s.in_c);
    for (int8_t& w : weight) w = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
    const std::vector<float> multiplier(s.out_c, 3e-5f), bias(s.out_c, 30.0f);
    Conv2dParams p;
    p.weight = weight.data(), p.multiplier = multiplier.data(), p.bias = bias.data();
    p.has_residual = l.residual, p.residual_multiplier = 0.5f;

    const size_t x_bytes = static_cast<size_t>(batch) * s.in_h * s.in_w * s.in_stride;
    const size_t pixels = static_cast<size_t>(batch) * s.out_h * s.out_w, y_bytes = pixels * s.out_stride;
    const size_t read = l.kernel == 1 && l.stride == 2 ? x_bytes / 2 : x_bytes;
    const double bytes = static_cast<double>(read) + y_bytes * (l.residual ? 2 : 1) + weight.size();
    const double products = static_cast<double>(pixels) * s.out_c * s.kernel_h * s.kernel_w * s.in_c;
    const double floor_us = std::max(bytes / 4.28e6, 2 * products / 1.6e9);
    const int copies = static_cast<int>(std::clamp<size_t>((size_t{batch > 8 ? 256u : 0u} << 20) / static_cast<size_t>(bytes) + 1, 1, 16));
    auto step = [](size_t b) { return (b + kCudaReadSlack + 255) / 256 * 256; };
    const DeviceBuffer x = random_buffer(step(x_bytes) * copies, stream), y = random_buffer(step(y_bytes) * copies, stream),
                       r = random_buffer(l.residual ? step(y_bytes) * copies : 256, stream);

    std::vector<Candidate> candidates;
    std::vector<CudaConv2d> mma;
    mma_choices({s, p, batch, gpu}, mma);
    for (const CudaConv2d& conv : mma) candidates.push_back({conv, &cuda_mma_family(), "mma" + std::to_string(conv.variant)});
    for (int t = 0; t < static_cast<int>(kWgmmaTiles.size()); ++t) {
      const WgmmaTile& tile = kWgmmaTiles[t];
      const WgmmaGrid grid(tile, s, batch);
      for (const int split : {1, 2, 4, 8}) {
        if (split > 1 && (split > wgmma_max_split(grid) || grid.tiles() * split > tile.blocks * (tile.own_tile ? 2 : 1) * gpu.multiprocessors * 3 / 2)) break;
        candidates.push_back({wgmma_choice(t, split), &cuda_wgmma_family(), std::to_string(tile.block_n) + "x" + std::to_string(tile.block_k)});
      }
    }
    for (int t = 0; t < static_cast<int>(kHeldTiles.size()); ++t) {
      for (const bool shifted : {false, true}) {
        if (held_supports(t, shifted, s, batch))
          candidates.push_back({held_choice(t, shifted), &cuda_wgmma_held_family(), std::to_string(kHeldTiles[t].block_n) + "x" + std::to_string(kHeldTiles[t].block_k)});
      }
    }

    std::map<std::string, std::vector<uint8_t>> packs;
    std::map<std::string, std::pair<double, std::string>> best;  // by family
    std::vector<std::pair<double, std::string>> all;
    for (const Candidate& c : candidates) {
      if (skip.find("," + c.conv.name + ",") != std::string::npos) continue;
      if (FILE* state = fopen(argv[3], "w")) {
        fprintf(state, "%d %s\n", index, c.conv.name.c_str());
        fclose(state);
      }
      if (!packs.contains(c.key)) packs[c.key] = c.family->pack(c.conv, s, p);
      const std::vector<uint8_t>& packed = packs[c.key];
      const DeviceBuffer constants(packed.size() + kCudaReadSlack, "weights");
      copy_to_device(constants.data(), packed.data(), packed.size(), stream.get());
      const size_t scratch = c.family->workspace ? c.family->workspace(c.conv, s, batch) : 0;
      const DeviceBuffer workspace(std::max<size_t>(scratch, 256), "workspace");
      fill_device(workspace.data(), 0, workspace.bytes(), stream.get());
      stream.wait("preparing");
      const int launches = std::max(copies, 10);
      try {
        const CapturedGraph graph(stream, [&] {
          for (int i = 0; i < launches; ++i) {
            const int at = i % copies;
            c.family->launch(c.conv, s, p, {batch, constants.data(), x.data() + step(x_bytes) * at, l.residual ? r.data() + step(y_bytes) * at : nullptr, y.data() + step(y_bytes) * at, workspace.data()}, stream.get());
          }
        });
        double us = 1e9;
        std::vector<double> times;
        for (int i = 0; i < 6; ++i) {
          Event start, stop;
          start.record(stream.get());
          graph.replay(stream.get());
          stop.record(stream.get());
          stop.wait();
          if (i >= 1) times.push_back(stop.milliseconds_since(start) * 1e3 / launches);
          if (i == 1 && !all.empty() && times[0] > 3 * std::min_element(all.begin(), all.end())->first) break;
        }
        std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
        us = times[times.size() / 2];
        const std::string family = c.conv.name.substr(0, 10) == "wgmma_held" ? "held" : c.conv.name.substr(0, 5) == "wgmma" ? "wgmma" : "mma";
        if (!best.contains(family) || us < best[family].first) best[family] = {us, c.conv.name};
        all.push_back({us, c.conv.name});
        fprintf(csv, "%d,%d,%d,%d,%d,%d,%d,%d,%s,%.2f\n", batch, index, l.in_c, l.size, l.out_c, l.kernel, l.stride, l.residual, c.conv.name.c_str(), us);
      } catch (const std::exception& e) {
        printf("    %s: %s\n", c.conv.name.c_str(), e.what());
      }
    }
    fflush(csv);
    std::sort(all.begin(), all.end());
    printf("%2d %dx %4d,%2d -> %4d %dx%d/%d%s floor %5.1f cudnn %5.1f |", index, l.count, l.in_c, l.size, l.out_c, l.kernel, l.kernel, l.stride, l.residual ? "+r" : "  ", floor_us, batch == 128 ? l.cudnn : 0.0);
    for (const char* family : {"mma", "wgmma", "held"})
      if (best.contains(family)) printf(" %s %5.1f (%s)", family, best[family].first, best[family].second.c_str());
    printf("\n     ");
    for (size_t i = 0; i < std::min<size_t>(all.size(), 5); ++i) printf(" %s %.1f", all[i].second.c_str(), all[i].first);
    printf("\n");
    fflush(stdout);
    total_best += all[0].first * l.count, total_mma += best["mma"].first * l.count, total_floor += floor_us * l.count;
  }
  if (FILE* state = fopen(argv[3], "w")) {
    fprintf(state, "done\n");
    fclose(state);
  }
  printf("batch %d: best %.3f ms, mma %.3f ms, floor %.3f ms (from layer %d)\n", batch, total_best * 1e-3, total_mma * 1e-3, total_floor * 1e-3, first);
  return 0;
}
