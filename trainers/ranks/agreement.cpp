// What ranks tell each other on the host: flags, numbers, bytes, text, and whether they hold the same bits.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "src/common/error.h"
#include "trainers/ranks/connected.h"

namespace octet {
namespace {

constexpr std::chrono::hours kWhileOthersMeasure{24};

void send_from_first(const Group& group, const at::Tensor& tensor) {
  std::vector<at::Tensor> tensors{tensor};
  group->broadcast(tensors)->wait();
}

/// Changes with every bit and every change of places: sum of (2 i + 1) * bits of element i, modulo 2^64.
at::Tensor bits_of(const at::Tensor& tensor) {
  const at::Tensor values = in_memory_order(tensor.detach().contiguous());
  const at::Tensor bits = values.element_size() == 8   ? values.view(at::kLong)
                          : values.element_size() == 4 ? values.view(at::kInt).to(at::kLong)
                          : values.element_size() == 2 ? values.view(at::kShort).to(at::kLong)
                                                       : values.view(at::kByte).to(at::kLong);
  return bits.mul(at::arange(1, 2 * bits.numel(), 2, bits.options())).sum();
}

}  // namespace

bool Ranks::any(bool mine) {
  const at::Tensor flag = at::full({1}, mine ? 1 : 0, at::kInt);
  with_others([&] { add_up(groups_->host, flag, c10d::ReduceOp::MAX); });
  return flag.item<int>() != 0;
}

std::vector<double> Ranks::sum(std::vector<double> mine) {
  const at::Tensor values = at::from_blob(mine.data(), {static_cast<int64_t>(mine.size())}, at::kDouble);
  with_others([&] { add_up(groups_->host, values); });
  return mine;
}

std::vector<std::vector<uint8_t>> Ranks::gather(const std::vector<uint8_t>& mine) {
  const c10d::AllgatherOptions options{.timeout = kWhileOthersMeasure};
  at::Tensor length = at::full({1}, static_cast<int64_t>(mine.size()), at::kLong);
  at::Tensor lengths = at::empty({size()}, length.options()), all;
  with_others([&] {
    groups_->host->_allgather_base(lengths, length, options)->wait();
    at::Tensor padded = at::zeros({lengths.max().item<int64_t>()}, at::kByte);
    std::copy(mine.begin(), mine.end(), padded.data_ptr<uint8_t>());
    all = at::empty({size(), padded.numel()}, at::kByte);
    at::Tensor flat = all.flatten();
    if (padded.numel() > 0) groups_->host->_allgather_base(flat, padded, options)->wait();
  });
  std::vector<std::vector<uint8_t>> result;
  for (int rank = 0; rank < size(); ++rank) {
    const uint8_t* const begin = all.const_data_ptr<uint8_t>() + rank * all.size(1);
    result.emplace_back(begin, begin + lengths[rank].item<int64_t>());
  }
  return result;
}

std::string Ranks::from_first(const std::string& text) {
  std::string result = text;
  with_others([&] {
    at::Tensor length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
    send_from_first(groups_->host, length);
    result.resize(static_cast<size_t>(length.item<int64_t>()));
    if (!result.empty())
      send_from_first(groups_->host, at::from_blob(result.data(), {static_cast<int64_t>(result.size())}, at::kByte));
  });
  return result;
}

void Ranks::copy_from_first(std::map<std::string, at::Tensor>& tensors) {
  with_others([&] {
    for (auto& [name, tensor] : tensors) {
      if (tensor.numel() > 0) send_from_first(groups_->host, in_memory_order(tensor));
    }
  });
}

void Ranks::require_same(const std::map<std::string, at::Tensor>& tensors, const std::string& what) {
  std::vector<at::Tensor> bits;
  for (const auto& [name, tensor] : tensors) bits.push_back(bits_of(tensor).to(at::kCPU));
  if (bits.empty()) return;
  const at::Tensor mine = at::stack(bits), theirs = mine.clone();
  at::Tensor differing = at::full({1}, static_cast<int64_t>(bits.size()), at::kLong);
  with_others([&] {
    send_from_first(groups_->host, theirs);
    for (int64_t i = mine.numel() - 1; i >= 0; --i)
      if (mine[i].item<int64_t>() != theirs[i].item<int64_t>()) differing.fill_(i);
    add_up(groups_->host, differing, c10d::ReduceOp::MIN);
  });
  const auto first = static_cast<size_t>(differing.item<int64_t>());
  if (first == bits.size()) return;
  throw promise_error(fmt::format("{}: '{}' is not the same on all {} ranks; they train different networks", what,
                                  std::next(tensors.begin(), static_cast<long>(first))->first, size()));
}

}  // namespace octet
