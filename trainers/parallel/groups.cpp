// SPDX-License-Identifier: Apache-2.0
#include "trainers/parallel/groups.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "src/base/progress.h"
#include "src/base/threads.h"

// What LibTorch's ProcessGroupGloo.hpp needs from Gloo's headers: names, and the interface of Store. LibTorch's wheel
// has the Gloo library (in libtorch_cpu), but not these headers; trainers/CMakeLists.txt writes empty ones. Nothing
// here is called by octet.
namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport

namespace rendezvous {
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) = 0;
};
}  // namespace rendezvous

}  // namespace gloo

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#if OCTET_CUDA
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace octet {
namespace {

constexpr std::chrono::minutes kUntilAllCame{10};
constexpr std::chrono::seconds kUntilAnswered{20}, kSilent{5}, kVisit{2};

/// Waits until there() is true. Prints a line after some seconds, ends on Ctrl-C, throws after ten minutes. whom: for
/// the messages.
template <class There>
void wait_for(const There& there, const std::string& whom) {
  const auto begin = std::chrono::steady_clock::now();
  bool said = false;
  while (!there()) {
    throw_if_interrupted();
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited > kUntilAllCame) throw std::runtime_error(whom + " did not come");
    if (waited > kSilent && !std::exchange(said, true)) say(fmt::format("waits for {}, up to ten minutes", whom));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

/// Returns `store` with a prefix before all keys.
StorePointer prefixed(const std::string& prefix, const StorePointer& store) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

/// Opens a connection to the store, or the store itself. Keeps c10d from printing a backtrace of 60 lines when the
/// store is gone. The prefix separates our keys from a launcher's.
StorePointer connected(const std::string& address, const c10d::TCPStoreOptions& options) {
  if (!from_process("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = 2;
  return prefixed("octet", c10::make_intrusive<c10d::TCPStore>(address, options));
}

/// Returns connected(), or throws Error(usage) after 20 s. Who listens may be another program, or a stopped one: c10d
/// would wait forever and ignore Ctrl-C, so it waits in a thread of its own, which is abandoned.
StorePointer connected_in_time(const std::string& address, const c10d::TCPStoreOptions& options) {
  const auto promised = std::make_shared<std::promise<StorePointer>>();
  std::future<StorePointer> store = promised->get_future();
  const auto connect = [promised, address, options] {
    try {
      promised->set_value(connected(address, options));
    } catch (...) {
      promised->set_exception(std::current_exception());
    }
  };
  start_thread(connect, "a thread that asks rank 0", "raise that limit").detach();
  const auto until = std::chrono::steady_clock::now() + kUntilAnswered;
  while (store.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    throw_if_interrupted();
    if (std::chrono::steady_clock::now() > until)
      throw usage_error(
          fmt::format("who listens at {}:{} does not answer as rank 0 does: it is stopped, or the port is another "
                      "program's; take another MASTER_PORT",
                      address, options.port));
  }
  return store.get();
}

/// Returns a group over Gloo. rank and size: within the group, not among all ranks.
Group gloo_group(const StorePointer& store, const RankEnvironment& environment, int rank, int size,
                 std::chrono::milliseconds patience) {
  const auto options = c10d::ProcessGroupGloo::Options::create(patience);
  options->devices.push_back(
      c10d::ProcessGroupGloo::createDeviceForHostname(own_address_towards(environment.address, environment.port)));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

/// Returns a group over NCCL. rank and size: within the group, not among all ranks.
Group nccl_group([[maybe_unused]] const StorePointer& store, [[maybe_unused]] int rank, [[maybe_unused]] int size) {
#if OCTET_CUDA
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size);
#else
  throw promise_error("ranks: a GPU in a build without CUDA");
#endif
}

}  // namespace

StorePointer open_store(const RankEnvironment& environment) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(environment.port);
  options.isServer = environment.rank == 0 && !environment.store_is_there;
  options.waitWorkers = false;  // creating the groups waits for all ranks
  options.timeout = kUntilAllCame;
  if (options.isServer) {
    options.masterListenFd = listen_at(environment.address, environment.port);
  } else {  // c10d's own waiting ignores Ctrl-C
    wait_for([&] { return is_listened_at(environment.address, environment.port); },
             fmt::format("who listens at {}:{}", environment.address, environment.port));
  }
  return connected_in_time(environment.address, options);
}

StorePointer visit_store(const std::string& address, int port) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  options.timeout = kVisit;
  try {
    if (!is_listened_at(address, port)) return nullptr;
    return connected(address, options);
  } catch (const std::exception&) {  // it ended after the check
    return nullptr;
  }
}

void wait_until_all_came(const StorePointer& store, const RankEnvironment& environment) {
  const auto key = [](int rank) { return fmt::format("came/{}", rank); };
  store->set(key(environment.rank), std::vector<uint8_t>{1});
  for (int rank = 0; rank < environment.size; ++rank)
    wait_for([&] { return store->check({key(rank)}); }, fmt::format("rank {}", rank));
}

Group host_group(const StorePointer& store, const RankEnvironment& environment, std::chrono::milliseconds patience) {
  return gloo_group(prefixed("host", store), environment, environment.rank, environment.size, patience);
}

Group device_group(const StorePointer& store, const RankEnvironment& environment, at::Device device,
                   const Group& host) {
  if (device.is_cpu()) return host;
  // The host notices in each step when a rank ends. NCCL's own watch would query events of a stream that is recorded.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
  const std::string own = own_address_towards(environment.address, environment.port);
  if (own.starts_with("127.") || own == "::1") ::setenv("NCCL_SOCKET_IFNAME", "lo", /*overwrite=*/0);
  return nccl_group(prefixed("gpus", store), environment.rank, environment.size);
}

Group gathering_group(const StorePointer& store, const RankEnvironment& environment, at::Device device,
                      const Group& host) {
  if (device.is_cpu()) return host;
  return nccl_group(prefixed("gathering", store), environment.rank, environment.size);
}

Group link_group(const StorePointer& store, const RankEnvironment& environment, int other, at::Device device,
                 const Group& host) {
  if (device.is_cpu()) return host;
  const int low = std::min(environment.rank, other), high = std::max(environment.rank, other);
  return nccl_group(prefixed(fmt::format("link/{}-{}", low, high), store), environment.rank == low ? 0 : 1, 2);
}

Group team_group(const StorePointer& store, const RankEnvironment& environment, int teams, at::Device device,
                 std::chrono::milliseconds patience) {
  const StorePointer own = prefixed(fmt::format("team/{}", environment.rank % teams), store);
  const int rank = environment.rank / teams, size = environment.size / teams;
  if (device.is_cpu()) return gloo_group(own, environment, rank, size, patience);
  return nccl_group(own, rank, size);
}

}  // namespace octet
