// Weight files written by torch.save: zip files (PyTorch 1.6 and later) and the older format of appended storages.
#pragma once

#include <cstddef>
#include <string>

#include "src/tensor_files/tensor_data.h"

namespace octet {

/// The tensors of a state_dict, row-major: of the dictionary under a key that training scripts use ("state_dict",
/// "model", "ema" ...; kWeightKeys has all, in the order of preference), else of the file's outermost dictionary.
/// Everything that is no tensor is left out. Nothing in the file is executed; a file that needs a class or function
/// beyond tensors and plain containers is refused by its name. Throws Error(data), which lists the keys that are there.
TensorFile read_pytorch_file(const std::string& path);

/// The same from memory (fuzzing, tests); `name` stands for the path in messages.
TensorFile parse_pytorch_file(const std::byte* data, size_t size, const std::string& name);

}  // namespace octet
