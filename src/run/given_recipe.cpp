#include "src/run/given_recipe.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "src/common/error.h"
#include "src/common/shell.h"
#include "src/onnx/import.h"
#include "src/tensor_files/file_kind.h"

namespace octet {

std::string kind_of_network_file(const std::string& path) {
  std::array<std::byte, 16> first{};
  std::error_code error;
  const auto size = static_cast<size_t>(std::filesystem::file_size(path, error));
  if (error || size < first.size()) return "";
  std::ifstream in(path, std::ios::binary);
  if (!in.read(reinterpret_cast<char*>(first.data()), static_cast<std::streamsize>(first.size()))) return "";
  const std::string file = shell_word(path);
  if (is_safetensors(first.data(), size))
    return fmt::format(
        "a safetensors file; a recipe takes float weights by --set model.weights={}, octet run and inspect take an "
        "int8 "
        "checkpoint",
        file);
  if (is_pytorch(first.data(), first.size()))
    return fmt::format("weights of PyTorch; a recipe takes them by --set model.weights={}", file);
  return is_onnx(first.data(), first.size()) ? describe_onnx(path) : "";
}

Recipe read_given_recipe(const std::string& path, const std::vector<std::string>& overrides) {
  if (const std::string kind = kind_of_network_file(path); !kind.empty())
    throw usage_error(fmt::format("{}: expected a recipe, found {}", path, kind));
  return read_recipe(path, overrides);
}

}  // namespace octet
