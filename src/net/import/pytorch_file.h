// SPDX-License-Identifier: Apache-2.0
// Weight files of torch.save: zip files (since PyTorch 1.6) and the older format, pickles followed by storages; and
// which weights a file holds.
#pragma once

#include <cstddef>
#include <string>

#include "src/base/safetensors.h"

namespace octet {

/// Returns the tensors of a state_dict, row-major. The state_dict is the dictionary under a key that training scripts
/// use
/// ("state_dict", "model", "ema" ...; kWeightKeys lists all in order of preference), else the file's outermost
/// dictionary; values in it that are not tensors are left out. Nothing in the file is executed: a file that needs a
/// class or function other than tensors and plain containers is refused. Throws Error(data), which lists the keys
/// found.
TensorFile read_pytorch_file(const std::string& path);

/// Reads a file that is in memory; `name` stands for the path in messages.
TensorFile parse_pytorch_file(const std::byte* data, size_t size, const std::string& name);

/// Reads the weights of a .safetensors, .pth, .pt or .th file. Throws Error(usage) for another ending.
TensorFile read_weights_file(const std::string& path);

/// Whether BatchNorm is folded into the convolutions of a weights file: one of them has a bias, and nothing has running
/// statistics. A network without BatchNorm looks the same.
bool has_folded_batch_norm(const TensorFile& weights);

}  // namespace octet
