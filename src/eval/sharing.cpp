#include "src/eval/sharing.h"

namespace octet {

std::vector<size_t> Sharing::mine(const std::vector<size_t>& indices, int batch_size) const {
  std::vector<size_t> result;
  const auto batch = static_cast<size_t>(batch_size);
  for (size_t begin = rank * batch; begin < indices.size(); begin += size * batch) {
    const size_t end = std::min(begin + batch, indices.size());
    result.insert(result.end(), indices.begin() + static_cast<long>(begin), indices.begin() + static_cast<long>(end));
  }
  return result;
}

}  // namespace octet
