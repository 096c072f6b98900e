#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "kernels/quantize.h"
#include "src/model/model.h"

namespace octet {
namespace {

/// Normalizes `pixels` pixels of kChannels (0: `channels`) interleaved bytes. tables: [channels][256].
template <int kChannels>
void normalize(const uint8_t* in, float* out, int64_t pixels, int channels, const float* tables) {
  const int c_count = kChannels > 0 ? kChannels : channels;
  for (int64_t i = 0; i < pixels; ++i)
    for (int c = 0; c < c_count; ++c) out[i * c_count + c] = tables[c * 256 + in[i * c_count + c]];
}

}  // namespace

at::Tensor images_to_tensor(const uint8_t* images, int batch, const Shape& shape, const std::vector<float>& mean,
                            const std::vector<float>& std) {
  std::vector<float> tables(static_cast<size_t>(shape.c) * 256);
  for (int c = 0; c < shape.c; ++c)
    for (int p = 0; p < 256; ++p) tables[c * 256 + p] = normalize_pixel(static_cast<uint8_t>(p), mean.at(c), std.at(c));

  at::Tensor x =
      at::empty({batch, shape.c, shape.h, shape.w}, at::TensorOptions(at::kFloat), at::MemoryFormat::ChannelsLast);
  float* out = x.mutable_data_ptr<float>();
  const int64_t pixels = static_cast<int64_t>(batch) * shape.h * shape.w;
  constexpr int64_t kGrain = 16384;
  at::parallel_for(0, pixels, kGrain, [&](int64_t begin, int64_t end) {
    const auto run = shape.c == 3 ? normalize<3> : shape.c == 1 ? normalize<1> : normalize<0>;
    run(images + begin * shape.c, out + begin * shape.c, end - begin, shape.c, tables.data());
  });
  return x;
}

}  // namespace octet
