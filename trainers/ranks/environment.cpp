#include "trainers/ranks/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "src/common/error.h"
#include "src/common/split.h"

namespace octet {
namespace {

constexpr const char* kWhoSets =
    "torchrun sets it; by hand: WORLD_SIZE=2 RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500";

std::string required(const Lookup& lookup, const char* name) {
  const std::optional<std::string> value = lookup(name);
  if (!value || value->empty()) throw usage_error(fmt::format("WORLD_SIZE is set, but {} is not ({})", name, kWhoSets));
  return *value;
}

int number(const char* name, const std::string& text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw usage_error(fmt::format("{}='{}': a whole number from {} to {} is needed", name, text, least, most));
  return value;
}

int number_or(const Lookup& lookup, const char* name, int usual, int least, int most) {
  const std::optional<std::string> text = lookup(name);
  return text ? number(name, *text, least, most) : usual;
}

}  // namespace

std::optional<std::string> from_process(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::optional<RankEnvironment> read_rank_environment(const Lookup& lookup) {
  constexpr int kMost = 1 << 16;
  RankEnvironment ranks;
  ranks.size = number_or(lookup, "WORLD_SIZE", 1, 1, kMost);
  if (ranks.size == 1) return std::nullopt;
  ranks.rank = number("RANK", required(lookup, "RANK"), 0, ranks.size - 1);
  ranks.local_size = number_or(lookup, "LOCAL_WORLD_SIZE", ranks.size, 1, ranks.size);
  ranks.local_rank = number_or(lookup, "LOCAL_RANK", ranks.rank, 0, ranks.local_size - 1);
  ranks.address = required(lookup, "MASTER_ADDR");
  ranks.port = number("MASTER_PORT", required(lookup, "MASTER_PORT"), 1, (1 << 16) - 1);
  ranks.store_is_there = lookup("TORCHELASTIC_USE_AGENT_STORE") == "True";
  return ranks;
}

std::string own_gpu(const RankEnvironment& ranks, const std::optional<std::string>& visible) {
  if (!visible) return std::to_string(ranks.local_rank);
  const std::vector<std::string> names = split(*visible, ',');
  if (names.size() == 1) return *visible;
  if (names.size() < static_cast<size_t>(ranks.local_size))
    throw usage_error(fmt::format("CUDA_VISIBLE_DEVICES={} names {} GPUs for {} processes on this host; a GPU each",
                                  *visible, names.size(), ranks.local_size));
  return names[static_cast<size_t>(ranks.local_rank)];
}

}  // namespace octet
