// What the recipe's section `quant` says about codes.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/common/named.h"

namespace octet {

enum class ActivationScheme { symmetric_s8, unsigned_u8, affine_u8 };
inline constexpr std::array<Named<ActivationScheme>, 3> kActivationSchemes = {
    {{ActivationScheme::symmetric_s8, "symmetric_s8"},
     {ActivationScheme::unsigned_u8, "unsigned_u8"},
     {ActivationScheme::affine_u8, "affine_u8"}}};

enum class Granularity { per_tensor, per_channel };
inline constexpr std::array<Named<Granularity>, 2> kGranularities = {
    {{Granularity::per_channel, "per_channel"}, {Granularity::per_tensor, "per_tensor"}}};

enum class WeightRange { symmetric, full };
inline constexpr std::array<Named<WeightRange>, 2> kWeightRanges = {
    {{WeightRange::symmetric, "symmetric"}, {WeightRange::full, "full"}}};

/// Of weights: of each four input channels at one place two at most are not 0 (kernels/sparsity/two_of_four.h).
enum class Sparsity { none, two_of_four };
inline constexpr std::array<Named<Sparsity>, 2> kSparsities = {
    {{Sparsity::none, "none"}, {Sparsity::two_of_four, "2:4"}}};

/// Bits of single layers, by name; 0: as the others.
struct LayerBits {
  std::string match;  ///< a glob over the fused graph's nodes: * and ?
  int weight_bits = 0, activation_bits = 0;
};

/// All bits are 2..8.
struct QuantSpec {
  ActivationScheme activation = ActivationScheme::affine_u8;
  int activation_bits = 8;  ///< edges
  int weight_bits = 8;      ///< weights
  Granularity weight_granularity = Granularity::per_channel;
  WeightRange weight_range = WeightRange::symmetric;
  Sparsity sparsity = Sparsity::none;
  int input_bits = 8;             ///< the picture's edge
  int first_layer_bits = 8;       ///< weights of the layers that read it
  int last_layer_bits = 8;        ///< weights of the layer that gives the logits, and the edge it reads
  int residual_bits = 0;          ///< edges that an add reads; 0: activation_bits
  std::vector<LayerBits> layers;  ///< later ones win
};

/// Every weight and every edge of so many bits.
QuantSpec uniform_bits(int activation_bits, int weight_bits);

}  // namespace octet
