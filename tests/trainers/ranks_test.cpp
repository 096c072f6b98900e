// SPDX-License-Identifier: Apache-2.0
#include "trainers/parallel/ranks.h"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <set>
#include <sstream>
#include <system_error>

#include "src/base/error.h"
#include "tests/trainers/ranks.h"
#include "tests/trainers/tiny.h"

namespace octet {
namespace {

using testing_trainers::expect_part;
using testing_trainers::kNobodyThrew;
using testing_trainers::local_rank;
using testing_trainers::message_of;
using testing_trainers::run_ranks;

TEST(Ranks, SumsOfEveryTypeAndLayout) {
  EXPECT_EQ(run_ranks(2,
                      [](Ranks& ranks) {
                        const double mine = ranks.rank() + 1;
                        const at::Tensor image = at::arange(24, at::kFloat).reshape({1, 2, 3, 4});
                        const at::Tensor last = (image * mine).contiguous(at::MemoryFormat::ChannelsLast);
                        const at::Tensor first = (image * mine).contiguous(), sums = at::full({3}, mine, at::kDouble);
                        ranks.sum({last, sums, first});
                        EXPECT_TRUE(last.equal(image * 3));
                        EXPECT_TRUE(first.equal(image * 3));
                        EXPECT_TRUE(sums.equal(at::full({3}, 3.0, at::kDouble)));
                        EXPECT_EQ(ranks.sum(std::vector<double>{mine, 0.5}), (std::vector<double>{3, 1}));
                      }),
            kNobodyThrew);
}

TEST(Ranks, BytesOfAnyLengthAndPatienceWithOnesThatMeasure) {
  const Ranks::Faults faults{.patience = std::chrono::seconds(1)};
  const auto work = [](Ranks& ranks) {
    if (ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
    using Bytes = std::vector<uint8_t>;
    const Bytes mine(static_cast<size_t>(ranks.rank()) * 3, static_cast<uint8_t>(7 + ranks.rank()));
    EXPECT_EQ(ranks.gather(mine), (std::vector<Bytes>{{}, {8, 8, 8}, {9, 9, 9, 9, 9, 9}}));
    EXPECT_EQ(ranks.gather(Bytes()), std::vector<Bytes>(3));
  };
  EXPECT_EQ(run_ranks(
                3, work, [](int) { return "the same"; }, faults),
            std::vector<std::string>(3));
}

TEST(Ranks, GatherInTheirOrder) {
  EXPECT_EQ(run_ranks(2,
                      [](Ranks& ranks) {
                        const at::Tensor mine = at::arange(6, at::kFloat).view({2, 3}) + 10 * ranks.rank();
                        const at::Tensor all = ranks.gather(mine.t());  // not contiguous
                        EXPECT_EQ(all.sizes(), at::IntArrayRef({2, 3, 2}));
                        const at::Tensor first = at::arange(6, at::kFloat).view({2, 3}).t();
                        EXPECT_TRUE(all[0].equal(first));
                        EXPECT_TRUE(all[1].equal(first + 10));
                      }),
            kNobodyThrew);
}

TEST(Ranks, TheFirstOnesTextAndTensorsReachAll) {
  EXPECT_EQ(run_ranks(2,
                      [](Ranks& ranks) {
                        EXPECT_EQ(ranks.from_first(ranks.first() ? "runs/a-1" : "elsewhere, and longer"), "runs/a-1");
                        std::map<std::string, at::Tensor> tensors{{"a", at::full({2}, ranks.rank() + 0.5)},
                                                                  {"empty", at::empty({0})}};
                        ranks.copy_from_first(tensors);
                        EXPECT_TRUE(tensors["a"].equal(at::full({2}, 0.5)));
                        EXPECT_TRUE(ranks.any(ranks.rank() == 1));
                        EXPECT_FALSE(ranks.any(false));
                      }),
            kNobodyThrew);
}

TEST(Ranks, TheFirstTensorThatDiffersInABitIsNamed) {
  const std::vector<std::string> thrown = run_ranks(2, [](Ranks& ranks) {
    const at::Tensor same = at::arange(5, at::kFloat), swapped = at::arange(5, at::kFloat);
    ranks.require_same({{"a", same}, {"b", swapped}}, "phase qat, after epoch 1");
    if (!ranks.first()) {  // the same values in other places
      swapped[1].fill_(2);
      swapped[2].fill_(1);
    }
    ranks.require_same({{"a", same}, {"b", swapped}, {"c", swapped}}, "phase qat, after epoch 2");
  });
  for (const std::string& what : thrown)
    EXPECT_EQ(what, "phase qat, after epoch 2: 'b' is not the same on all 2 ranks; they train different networks");
}

TEST(Ranks, AnotherStartIsRefusedByItsLine) {
  const std::vector<std::string> thrown = run_ranks(
      2, [](Ranks&) {}, [](int rank) { return fmt::format("octet 0.1.0\nseed: {}\n", rank); });
  expect_part(thrown[0], "another rank was started otherwise than rank 0");
  expect_part(thrown[1], "rank 1 was started otherwise than rank 0: seed: 1 here, seed: 0 on rank 0");
  const std::vector<std::string> versions = run_ranks(
      2, [](Ranks&) {}, [](int rank) { return fmt::format("octet 0.{}.0\nseed: 0\n", rank); });
  expect_part(versions[1], "rank 1 was started otherwise than rank 0: octet 0.1.0 here, octet 0.0.0 on rank 0");
  const std::vector<std::string> recipes = run_ranks(
      2, [](Ranks&) {},
      [](int rank) { return fmt::format("train:\n  epochs: 2\nqat:\n  bits: 8\n  epochs: {}\n", rank); });
  expect_part(recipes[1], "otherwise than rank 0: qat: epochs: 1 here, qat: epochs: 0 on rank 0");
}

/// meet() of a rank whose others do not come; how long until it is told is added to `waits`. (How long they take to
/// find each other, with the host's name server, is not.)
void meet_nobody(Ranks& ranks, std::vector<double>& waits) {
  const auto start = std::chrono::steady_clock::now();
  try {
    ranks.meet();
  } catch (...) {
    waits[static_cast<size_t>(ranks.rank())] =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    throw;
  }
}

TEST(Ranks, AreToldAtOnceWhoEndedAndWhy) {
  constexpr double kAtOnce = 10;  // seconds: half of their patience with one that hangs
  for (const int gone : {0, 1}) {
    std::vector<double> waits(2, 0);
    const std::vector<std::string> thrown = run_ranks(2, [&](Ranks& ranks) {
      if (ranks.rank() == gone) {
        ranks.fail("the GPU is out of memory");
      } else {
        meet_nobody(ranks, waits);
      }
    });
    expect_part(thrown[static_cast<size_t>(1 - gone)],
                fmt::format("rank {} of 2 stops: rank {} ended: the GPU is out of memory", 1 - gone, gone));
    EXPECT_LT(waits[static_cast<size_t>(1 - gone)], kAtOnce);
  }
  std::vector<double> waits(3, 0);
  const std::vector<std::string> thrown = run_ranks(3, [&](Ranks& ranks) {
    if (ranks.rank() != 1) meet_nobody(ranks, waits);
  });
  for (const size_t left : {0, 2}) {
    expect_part(thrown[left], "stops: rank 1 ended without a word, or hangs");
    EXPECT_LT(waits[left], kAtOnce);
  }
}

TEST(Ranks, OneThatLivesButHangsIsNamedWhenPatienceIsOver) {
  std::promise<void> others_stopped;
  const Ranks::Faults faults{.patience = std::chrono::seconds(3)};
  const auto work = [&](Ranks& ranks) {
    if (ranks.rank() == 1) return others_stopped.get_future().wait();  // as if it never came back
    try {
      ranks.meet();
    } catch (...) {
      others_stopped.set_value();
      throw;
    }
  };
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::string> thrown = run_ranks(
      2, work, [](int) { return "the same"; }, faults);
  expect_part(thrown[0], "rank 0 of 2 stops: rank 1 ended without a word, or hangs");
  EXPECT_GE(std::chrono::steady_clock::now() - start, faults.patience);
  EXPECT_LT(std::chrono::steady_clock::now() - start, Ranks::Faults().patience);
}

TEST(Ranks, OneMayComeLaterThanPatienceLasts) {
  const Ranks::Faults faults{.patience = std::chrono::seconds(1)};
  const auto comes_late = [](int rank) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
    return std::string("the same");
  };
  EXPECT_EQ(run_ranks(
                2, [](Ranks& ranks) { ranks.meet(); }, comes_late, faults),
            kNobodyThrew);
}

TEST(Ranks, APortInUseIsNamed) {
  const int port = free_local_port(), taken = listen_at("127.0.0.1", port);
  const std::string message = message_of(ExitCode::usage, [&] { Ranks(local_rank(0, 2, port), at::kCPU, "the same"); });
  expect_part(message, fmt::format("rank 0 cannot listen at 127.0.0.1:{}: Address already in use", port));
  ::close(taken);
}

TEST(Ranks, ListenWhereTheyWereTold) {
  EXPECT_EQ(own_address_towards("127.0.0.1", 29500), "127.0.0.1");
  expect_part(message_of(ExitCode::usage, [] { listen_at("192.0.2.1", 29500); }),  // RFC 5737: nobody's address
              "MASTER_ADDR is an address of the host on which rank 0 runs");
}

/// Addresses, as /proc/self/net/tcp writes them, at which this process listens.
std::set<std::string> listens_at() {
  std::set<std::string> own;  // sockets by inode
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry, gone).string();
    if (target.starts_with("socket:[")) own.insert(target.substr(8, target.size() - 9));
  }
  std::set<std::string> addresses;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    std::getline(lines, line);  // names of the columns
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      const std::vector<std::string> row{std::istream_iterator<std::string>(words), {}};
      constexpr size_t kLocal = 1, kState = 3, kInode = 9;
      if (row.size() > kInode && row[kState] == "0A" && own.contains(row[kInode]))
        addresses.insert(row[kLocal].substr(0, row[kLocal].find(':')));
    }
  }
  return addresses;
}

TEST(Ranks, NothingListensAtAnotherAddress) {
  EXPECT_EQ(run_ranks(2,
                      [&](Ranks& ranks) {
                        ranks.meet();
                        EXPECT_EQ(listens_at(), std::set<std::string>{"0100007F"});  // 127.0.0.1, and not 0.0.0.0
                        ranks.meet();
                      }),
            kNobodyThrew);
}

}  // namespace
}  // namespace octet
