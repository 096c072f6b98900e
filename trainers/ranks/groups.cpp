#include "trainers/ranks/groups.h"

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
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>
#if OCTET_CUDA
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include "src/common/error.h"
#include "src/common/interrupt.h"
#include "src/common/progress.h"
#include "src/common/start_thread.h"
#include "trainers/ranks/sockets.h"

namespace octet {
namespace {

constexpr std::chrono::minutes kUntilAllCame{10};
constexpr std::chrono::seconds kUntilAnswered{20}, kSilent{5}, kVisit{2};

/// Until `there` is true; said after some seconds, ended by a Ctrl-C. Throws after ten minutes: `whom` did not come.
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

/// A launcher's own keys are in the same store.
StorePointer of_octet(const StorePointer& store) { return c10::make_intrusive<c10d::PrefixStore>("octet", store); }

/// A connection to the store, or the store itself. When it goes c10d would print 60 lines of calls beside our sentence.
StorePointer connected(const std::string& address, const c10d::TCPStoreOptions& options) {
  if (!from_process("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = 2;
  return of_octet(c10::make_intrusive<c10d::TCPStore>(address, options));
}

/// Whoever listens may be another program, or stopped. c10d would wait for its answer without end, deaf to a Ctrl-C: it
/// does so in a thread of its own, which is left behind.
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

/// `rank` of `size`: in the group, not among all.
Group gloo_group(const StorePointer& store, const RankEnvironment& environment, int rank, int size,
                 std::chrono::milliseconds patience) {
  const auto options = c10d::ProcessGroupGloo::Options::create(patience);
  options->devices.push_back(
      c10d::ProcessGroupGloo::createDeviceForHostname(own_address_towards(environment.address, environment.port)));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

}  // namespace

StorePointer open_store(const RankEnvironment& environment) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(environment.port);
  options.isServer = environment.rank == 0 && !environment.store_is_there;
  options.waitWorkers = false;  // the groups wait for each other
  options.timeout = kUntilAllCame;
  if (options.isServer) {
    options.masterListenFd = listen_at(environment.address, environment.port);
  } else {  // c10d's own waiting does not hear a Ctrl-C
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
  } catch (const std::exception&) {  // it went in between
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
  return gloo_group(c10::make_intrusive<c10d::PrefixStore>("host", store), environment, environment.rank,
                    environment.size, patience);
}

Group device_group([[maybe_unused]] const StorePointer& store, [[maybe_unused]] const RankEnvironment& environment,
                   at::Device device, const Group& host) {
  if (device.is_cpu()) return host;
#if OCTET_CUDA
  // A rank that ends is seen on the host in each step; NCCL's own watch would ask events of a stream being recorded.
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
  const std::string own = own_address_towards(environment.address, environment.port);
  if (own.starts_with("127.") || own == "::1") ::setenv("NCCL_SOCKET_IFNAME", "lo", /*overwrite=*/0);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>("gpus", store),
                                                     environment.rank, environment.size);
#else
  throw promise_error("ranks: a GPU in a build without CUDA");
#endif
}

Group gathering_group([[maybe_unused]] const StorePointer& store, [[maybe_unused]] const RankEnvironment& environment,
                      at::Device device, const Group& host) {
  if (device.is_cpu()) return host;
#if OCTET_CUDA
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(c10::make_intrusive<c10d::PrefixStore>("gathering", store),
                                                     environment.rank, environment.size);
#else
  throw promise_error("ranks: a GPU in a build without CUDA");
#endif
}

Group link_group([[maybe_unused]] const StorePointer& store, [[maybe_unused]] const RankEnvironment& environment,
                 [[maybe_unused]] int other, at::Device device, const Group& host) {
  if (device.is_cpu()) return host;
#if OCTET_CUDA
  const int low = std::min(environment.rank, other), high = std::max(environment.rank, other);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(
      c10::make_intrusive<c10d::PrefixStore>(fmt::format("link/{}-{}", low, high), store),
      environment.rank == low ? 0 : 1, 2);
#else
  throw promise_error("ranks: a GPU in a build without CUDA");
#endif
}

Group team_group(const StorePointer& store, const RankEnvironment& environment, int teams, at::Device device,
                 std::chrono::milliseconds patience) {
  const auto own = c10::make_intrusive<c10d::PrefixStore>(fmt::format("team/{}", environment.rank % teams), store);
  const int rank = environment.rank / teams, size = environment.size / teams;
  if (device.is_cpu()) return gloo_group(own, environment, rank, size, patience);
#if OCTET_CUDA
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(own, rank, size);
#else
  throw promise_error("ranks: a GPU in a build without CUDA");
#endif
}

}  // namespace octet
