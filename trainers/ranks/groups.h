// How ranks meet: LibTorch's store and groups of processes, with addresses and patience of our choice.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trainers/ranks/environment.h"

namespace octet {

using Group = c10::intrusive_ptr<c10d::Backend>;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

/// Throws Error(usage): the port is in use, or who listens there gives no answer.
StorePointer open_store(const RankEnvironment& environment);
/// For the launcher, which is none of the ranks: null where nobody listens, or answers within seconds.
StorePointer visit_store(const std::string& address, int port);

/// A group's own patience is for ranks that work: one that is started by hand, or waits in a queue, comes later.
void wait_until_all_came(const StorePointer& store, const RankEnvironment& environment);

/// Over Gloo, between the hosts' CPUs.
Group host_group(const StorePointer& store, const RankEnvironment& environment, std::chrono::milliseconds patience);

/// On GPUs over NCCL; on CPUs `host`.
Group device_group(const StorePointer& store, const RankEnvironment& environment, at::Device device, const Group& host);

/// Of all ranks beside device_group(), of whose exchanges its own wait for none; on CPUs `host`.
Group gathering_group(const StorePointer& store, const RankEnvironment& environment, at::Device device,
                      const Group& host);

/// The link of two of those ranks: on GPUs a group of its own, whose exchanges wait for no others; on CPUs `host`.
Group link_group(const StorePointer& store, const RankEnvironment& environment, int other, at::Device device,
                 const Group& host);

/// Of the ranks whose number modulo `teams` is this one's, on the device.
Group team_group(const StorePointer& store, const RankEnvironment& environment, int teams, at::Device device,
                 std::chrono::milliseconds patience);

}  // namespace octet
