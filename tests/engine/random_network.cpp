// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/random_network.h"

#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>

namespace octet::test {

Int8Graph random_convolution(uint64_t seed) {
  Random random(seed);
  const Shape input{random_channels(random), random.between(1, 12), random.between(1, 12)};
  NetworkBuilder network(random, input);
  int x = 0;
  if (random.chance(50)) x = network.convolution(0);  // its output is signed, odd, clamped, ...
  if (random.chance(40)) {
    const int main = network.convolution(x);
    return network.finish(network.convolution_like(random.chance(50) ? main : x, main));
  }
  return network.finish(network.convolution(x));
}

Int8Graph random_network(uint64_t seed) {
  Random random(seed);
  NetworkBuilder network(random, {random_channels(random), random.between(4, 20), random.between(4, 20)});
  std::vector<int> nodes = {0};
  const auto any = [&] { return nodes[random.between(0, static_cast<int>(nodes.size()) - 1)]; };
  const auto like = [&](int x, bool channels) {  // earlier nodes of x's size
    std::vector<int> found;
    for (const int node : nodes) {
      const Shape &a = network.shape(node), &b = network.shape(x);
      if (a.h == b.h && a.w == b.w && (!channels || a.c == b.c)) found.push_back(node);
    }
    return found[random.between(0, static_cast<int>(found.size()) - 1)];
  };
  for (int step = random.between(5, 12); step > 0; --step) {
    const int x = random.chance(70) ? nodes.back() : any();
    switch (random.between(0, 18)) {
      case 0:
        nodes.push_back(network.add(x, like(x, true)));
        break;
      case 1:
        nodes.push_back(network.concat({x, like(x, false), like(x, false)}));
        break;
      case 2:
        nodes.push_back(network.max_pool(x));
        break;
      case 3:
        nodes.push_back(network.avg_pool(x));
        break;
      case 4:
        nodes.push_back(network.requantize(x));
        break;
      case 5:
        nodes.push_back(network.subsample_pad(x));
        break;
      case 6:
        nodes.push_back(network.convolution_like(x, like(x, false)));
        break;
      case 7:
        nodes.push_back(network.lookup(x, random.chance(40)));
        break;
      case 8:
        nodes.push_back(network.mul(x, random.chance(40) ? like(x, true) : network.global_avg_pool(like(x, true))));
        break;
      case 9:
        nodes.push_back(network.slice(x));
        break;
      case 10:
      case 11:
      case 12:
        if (!is_small(network.shape(x))) {
          nodes.push_back(network.max_pool(x));
        } else {
          const int kind = random.between(0, 3);
          nodes.push_back(kind == 0   ? network.resize(x)
                          : kind == 1 ? network.depth_to_space(x)
                          : kind == 2 ? network.resize_bilinear(x)
                                      : network.transposed_convolution(x));
        }
        break;
      case 13:
        nodes.push_back(network.channel_shuffle(x));
        break;
      case 14:
      case 15:
        if (!is_small(network.shape(x))) {
          nodes.push_back(network.avg_pool(x));
        } else {
          const int kind = random.between(0, 3), other = like(x, true);
          nodes.push_back(kind == 0   ? network.softmax(x, std::gcd(network.shape(x).c, random.between(1, 6)))
                          : kind == 1 ? network.scores(x, other)
                                      : network.attention(x, other, like(x, false)));
        }
        break;
      case 16:
        nodes.push_back(network.prelu(x));
        break;
      default:
        nodes.push_back(network.convolution(x));
    }
  }
  for (int more = random.between(0, 2); more > 0; --more) {
    if (random.chance(50)) {
      network.output(any());
    } else {
      network.float_output(any());
    }
  }
  return network.finish(nodes.back());
}

std::vector<uint8_t> random_images(const Int8Graph& graph, int batch, uint64_t seed) {
  Random random(seed);
  const bool extremes = random.chance(20);
  const bool one_colour = extremes && random.chance(50);
  std::vector<uint8_t> pixels(static_cast<size_t>(graph.input_shape().elements()) * batch);
  const int colour = random.pick({0, 255});
  for (uint8_t& pixel : pixels) {
    pixel = static_cast<uint8_t>(one_colour ? colour : extremes ? random.pick({0, 255}) : random.between(0, 255));
  }
  return pixels;
}

std::vector<uint64_t> test_seeds(uint64_t first, int count) {
  if (const char* seed = std::getenv("OCTET_TEST_SEED")) return {std::strtoull(seed, nullptr, 10)};
  std::vector<uint64_t> seeds;
  for (int i = 0; i < count; ++i) seeds.push_back(first + i);
  return seeds;
}

int network_count(int usual) {
  const char* text = std::getenv("OCTET_TEST_NETWORKS");
  const int count = text == nullptr ? usual : std::atoi(text);
  if (count < 1) throw std::invalid_argument(std::string("OCTET_TEST_NETWORKS: '") + text + "' is no number from 1 on");
  return count;
}

}  // namespace octet::test
