// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/training_state.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <fmt/core.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/threads.h"
#include "src/train/model/device.h"

namespace octet {

// nlohmann::json finds this by name. It determines the keys of a state file, but for first_loss, which may be missing.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Position, epoch, step, finished, loss_sum, cross_entropy_sum, correct, seen, seconds,
                                   waited_seconds)

namespace {

// Before: 1: QAT always observed, ranges were floats; 2: recipes had no bit plan; 3: no scale could learn.
constexpr int kStateVersion = 4;
constexpr const char* kMetadataKey = "octet_state";
constexpr const char* kFirstLoss = "first_loss";

constexpr std::pair<DType, at::ScalarType> kTypes[] = {{DType::f32, at::kFloat}, {DType::f64, at::kDouble},
                                                       {DType::i32, at::kInt},   {DType::i64, at::kLong},
                                                       {DType::u8, at::kByte},   {DType::i8, at::kChar}};

Error has_no_type(const std::string& name) {
  return data_error(fmt::format("tensor '{}' has a type that state files do not hold", name));
}

DType dtype_of(at::ScalarType type, const std::string& name) {
  for (const auto& [dtype, scalar_type] : kTypes)
    if (scalar_type == type) return dtype;
  throw has_no_type(name);
}

at::ScalarType scalar_type_of(DType type, const std::string& name) {
  for (const auto& [dtype, scalar_type] : kTypes)
    if (dtype == type) return scalar_type;
  throw has_no_type(name);
}

std::atomic<int> g_under_way = 0;  // states that StateWriters write

struct UnderWay {
  explicit UnderWay(TensorFile state) : file(std::move(state)) { ++g_under_way; }
  ~UnderWay() {
    --g_under_way;
    g_under_way.notify_all();
  }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;

  TensorFile file;
};

}  // namespace

void put_tensors(TensorFile& file, const std::string& prefix, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor plain = to_host(tensor.detach());
    TensorData data;
    data.dtype = dtype_of(plain.scalar_type(), name);
    data.shape.assign(plain.sizes().begin(), plain.sizes().end());
    const auto* bytes = static_cast<const std::byte*>(plain.const_data_ptr());
    data.bytes.assign(bytes, bytes + plain.nbytes());
    file.tensors[prefix + "." + name] = std::move(data);
  }
}

NamedTensors get_tensors(const TensorFile& file, const std::string& prefix) {
  const std::string start = prefix + ".";
  NamedTensors tensors;
  for (auto it = file.tensors.lower_bound(start); it != file.tensors.end() && it->first.starts_with(start); ++it) {
    const TensorData& data = it->second;
    at::Tensor tensor = at::empty(data.shape, scalar_type_of(data.dtype, it->first));
    if (!data.bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), data.bytes.data(), data.bytes.size());
    tensors[it->first.substr(start.size())] = tensor;
  }
  return tensors;
}

void restore_tensors(const TensorFile& file, const std::string& prefix, const NamedTensors& targets,
                     const std::string& path) {
  c10::NoGradGuard no_grad;
  const NamedTensors stored = get_tensors(file, prefix);
  for (const auto& [name, tensor] : stored) {
    if (!targets.contains(name)) throw data_error(fmt::format("{}: unexpected tensor '{}.{}'", path, prefix, name));
  }
  for (const auto& [name, target] : targets) {
    const auto found = stored.find(name);
    if (found == stored.end()) throw data_error(fmt::format("{}: tensor '{}.{}' is missing", path, prefix, name));
    if (found->second.sizes() != target.sizes() || found->second.scalar_type() != target.scalar_type()) {
      throw data_error(fmt::format("{}: tensor '{}.{}' has another shape or type", path, prefix, name));
    }
    target.copy_(found->second);
  }
}

void restore_weights(const TensorFile& file, const NamedTensors& targets, const std::string& path) {
  const std::string prefix = "weights";
  for (const auto& [name, target] : targets) {
    const auto found = file.tensors.find(prefix + "." + name);
    if (found != file.tensors.end() && found->second.dtype == DType::f32)  // restore_tensors() refuses other types
      require_usable_weights(path, found->first, found->second);
  }
  restore_tensors(file, prefix, targets, path);
}

void write_state(const std::string& path, const StateOwner& owner, const Position& position, TensorFile file) {
  nlohmann::json state = position;
  if (position.first_loss) state[kFirstLoss] = *position.first_loss;
  state.update({{"version", kStateVersion}, {"phase", owner.phase}, {"fingerprint", owner.fingerprint}});
  file.metadata[kMetadataKey] = spell_numbers(std::move(state)).dump();
  write_safetensors(path, file);
}

void StateWriter::write(const std::string& path, const StateOwner& owner, const Position& position, TensorFile file) {
  wait();
  const auto state = std::make_shared<UnderWay>(std::move(file));  // a std::function is copied
  thread_ = start_thread(
      [=, this] {
        try {
          write_state(path, owner, position, std::move(state->file));
        } catch (...) {
          error_ = std::current_exception();
        }
      },
      "the thread that writes " + path, "end other programs");
}

void StateWriter::wait() {
  settle();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void StateWriter::settle() {
  if (thread_.joinable()) thread_.join();
}

void wait_for_states() {
  for (int count = g_under_way; count != 0; count = g_under_way) g_under_way.wait(count);
}

Position read_state(const std::string& path, const StateOwner& owner, TensorFile& file) {
  try {
    file = read_safetensors(path);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}; remove it to start the phase anew", error.what()));
  }
  const auto found = file.metadata.find(kMetadataKey);
  if (found == file.metadata.end())
    throw data_error(fmt::format("{}: not a training state of octet; remove it to start anew", path));
  try {
    const auto json = read_numbers(nlohmann::json::parse(found->second));
    if (const int version = json.at("version").get<int>(); version != kStateVersion) {
      throw data_error(
          fmt::format("{}: state version {} of {} octet, this one reads {}; finish the run with the octet "
                      "that began it, or remove the file to start the phase anew",
                      path, version, version < kStateVersion ? "an older" : "a newer", kStateVersion));
    }
    if (json.at("phase").get<std::string>() != owner.phase ||
        json.at("fingerprint").get<std::string>() != owner.fingerprint) {
      throw usage_error(
          fmt::format("{}: the state of another run (its recipe, model or starting weights differ); resume with the "
                      "recipe it was made with, remove the file to start the phase anew, or train into another --out",
                      path));
    }
    auto p = json.get<Position>();
    if (json.contains(kFirstLoss)) p.first_loss = json.at(kFirstLoss).get<double>();
    if (p.epoch < 0 || p.step < 0 || p.correct < 0 || p.seen < 0)
      throw data_error(fmt::format("{}: damaged metadata '{}': a negative count", path, kMetadataKey));
    return p;
  } catch (const nlohmann::json::exception& error) {
    throw data_error(fmt::format("{}: damaged metadata '{}': {}", path, kMetadataKey, error.what()));
  }
}

}  // namespace octet
