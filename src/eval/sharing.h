// Several processes that evaluate or compare over one set: each picture once, results those of one process.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

namespace octet {

/// Batches stay those that one process would make, so that a float network gives a picture the same bits: batch b is
/// process b % size's. All processes measure the same programs in the same order.
struct Sharing {
  using Bytes = std::vector<uint8_t>;
  int rank = 0, size = 1;
  std::function<std::vector<Bytes>(const Bytes& mine)> gather;  ///< every process's, by rank; waits for all

  bool first() const { return rank == 0; }
  /// Of a set's indices those in this process's batches.
  std::vector<size_t> mine(const std::vector<size_t>& indices, int batch_size) const;

  /// How far all are with `whole`, by and large, when this one is through with so many of its own.
  long so_far(long mine, size_t whole) const { return std::min(mine * size, static_cast<long>(whole)); }

  /// Every process's values, by rank.
  template <class T>
  std::vector<std::vector<T>> all(const std::vector<T>& values) const {
    static_assert(std::is_trivially_copyable_v<T>);
    Bytes bytes(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    std::vector<std::vector<T>> result;
    for (const Bytes& from : gather(bytes)) {
      result.emplace_back(from.size() / sizeof(T));
      if (!from.empty()) std::memcpy(result.back().data(), from.data(), from.size());
    }
    return result;
  }

  /// One value a picture from each process's mine(), in the order of the set.
  template <class T>
  static std::vector<T> in_order(const std::vector<std::vector<T>>& parts, int batch_size) {
    std::vector<T> result;
    std::vector<size_t> taken(parts.size());
    for (size_t part = 0; taken[part] < parts[part].size(); part = (part + 1) % parts.size()) {
      const size_t end = std::min(taken[part] + batch_size, parts[part].size());
      result.insert(result.end(), parts[part].begin() + static_cast<long>(taken[part]),
                    parts[part].begin() + static_cast<long>(end));
      taken[part] = end;
    }
    return result;
  }
};

}  // namespace octet
