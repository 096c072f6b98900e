// SPDX-License-Identifier: Apache-2.0
#include "trainers/parallel/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <thread>

#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/base/threads.h"
#include "trainers/parallel/groups.h"

namespace octet {
namespace {

constexpr int kLongestStep = 60, kTimesAtFirst = 5;
constexpr std::chrono::seconds kToTell{5};

/// Returns line i; if it is indented, after the line of its section: "qat: learning_rate: 0.1".
std::string with_its_section(const std::vector<std::string>& lines, size_t i) {
  if (i >= lines.size()) return "nothing";
  const size_t begin = lines[i].find_first_not_of(' ');
  if (begin == 0 || begin == std::string::npos) return lines[i];
  size_t section = i;
  while (section > 0 && lines[section].starts_with(' ')) --section;
  return lines[section] + " " + lines[i].substr(begin);
}

/// Returns the first line that differs: "version 0.1.0 here, version 0.2.0 on rank 0".
std::string first_difference(const std::string& mine, const std::string& theirs) {
  const std::vector<std::string> here = split(mine, '\n'), there = split(theirs, '\n');
  size_t i = 0;
  while (i < here.size() && i < there.size() && here[i] == there[i]) ++i;
  return fmt::format("{} here, {} on rank 0", with_its_section(here, i), with_its_section(there, i));
}

/// Returns the message without its backtrace and without Gloo's prefix
/// "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] ".
std::string cause_of(const std::exception& error) {
  const std::string line = split(error.what(), '\n').front();
  const size_t place = line.starts_with('[') ? line.find("] ") : std::string::npos;
  return place == std::string::npos ? line : line.substr(place + 2);
}

}  // namespace

/// Starts the watch first: rank 0, and with it the store, may stop before all have come.
Ranks::Groups::Groups(const RankEnvironment& environment, at::Device on, std::chrono::milliseconds patience,
                      Watch::Lost lost)
    : where(on),
      on_gpu(on.is_cuda()),
      store(open_store(environment)),
      last_words(store, environment.rank, environment.size),
      clock(on) {
  watch.emplace(*store, environment.store_is_there ? "the launcher through which they met" : "rank 0", environment.rank,
                environment.size, std::move(lost), Watch::Patience());
  wait_until_all_came(store, environment);
  host = host_group(store, environment, patience);
  device = device_group(store, environment, where, host);
}

void end_process(const std::string& why) {
  std::fputs(fmt::format("octet: {}\n", printable_lines(why)).c_str(), stderr);
  ::_exit(static_cast<int>(ExitCode::promise));
}

void Ranks::require_connected() const {
  if (!groups_ || !groups_->host) throw OthersLost(fmt::format("rank {} of {} has left the others", rank(), size()));
}

/// Turns an exception of c10d into a sentence.
void Ranks::lose_others(const std::exception& error) {
  groups_->abandon();
  throw_if_interrupted();  // Ctrl-C reaches all ranks; another one may have noticed it first
  const std::string why = stops_because(fmt::format("{} ({})", groups_->last_words.ask(), cause_of(error)));
  if (groups_->on_gpu) end(why);
  throw OthersLost(why);
}

std::string Ranks::stops_because(const std::string& why) {
  const std::lock_guard<std::mutex> lock(parting_);
  return fmt::format("rank {} of {} stops: {}{}", rank(), size(), why, cure_);
}

/// Runs `tell_` in a thread of its own and waits only kToTell for it: it writes a file, perhaps on a host that is gone.
void Ranks::end(const std::string& why) {
  const auto told = std::make_shared<std::promise<void>>();
  const std::future<void> done = told->get_future();
  const auto tell = [this, why, told] {
    const std::lock_guard<std::mutex> lock(parting_);
    if (tell_) tell_(why);
    told->set_value();
  };
  try {
    start_thread(tell, "a thread that tells why", "raise that limit").detach();
    done.wait_for(kToTell);
  } catch (const Error&) {  // the process ends all the same, and says why on stderr
  }
  faults_.end(why);
}

Ranks::Parting::Parting(Ranks* ranks, std::string cure, Tell tell) : ranks_(ranks) {
  if (ranks_ == nullptr) return;
  const std::lock_guard<std::mutex> lock(ranks_->parting_);
  ranks_->cure_ = std::move(cure);
  ranks_->tell_ = std::move(tell);
}

Ranks::Parting::~Parting() {
  if (ranks_ == nullptr) return;
  const std::lock_guard<std::mutex> lock(ranks_->parting_);
  ranks_->cure_.clear();
  ranks_->tell_ = nullptr;
}

Ranks::Ranks(const RankEnvironment& environment, at::Device device, const std::string& agreement)
    : Ranks(environment, device, agreement, Faults()) {}

Ranks::Ranks(const RankEnvironment& environment, at::Device device, const std::string& agreement, Faults faults)
    : environment_(environment), faults_(std::move(faults)) {
  try {
    groups_ = std::make_unique<Groups>(environment, device, faults_.patience,
                                       [this](const std::string& who) { end(stops_because(who)); });
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw promise_error(fmt::format("rank {} of {} found no others at {}:{}: {}", rank(), size(), environment.address,
                                    environment.port, cause_of(error)));
  }
  const std::string theirs = from_first(agreement);
  if (!any(theirs != agreement)) return;
  throw usage_error(theirs == agreement ? "another rank was started otherwise than rank 0; its own message says how"
                                        : fmt::format("rank {} was started otherwise than rank 0: {}", rank(),
                                                      first_difference(agreement, theirs)));
}

Ranks::~Ranks() = default;

std::optional<int> Ranks::longest_step() const {
  return faults_.longest_step || !groups_->on_gpu ? faults_.longest_step : kLongestStep;
}

void Ranks::Steps::due() {
  if (ranks_ == nullptr) return;
  if (const std::optional<int> seconds = ranks_->longest_step())
    ranks_->groups_->watch->due_within(std::chrono::seconds(ended_ < first_ ? kTimesAtFirst * *seconds : *seconds));
}

void Ranks::Steps::ended() {
  ++ended_;
  due();
}

void Ranks::Steps::none_due() {
  if (ranks_ != nullptr && ranks_->groups_ && ranks_->groups_->watch) ranks_->groups_->watch->nothing_due();
}

void Ranks::meet() { any(false); }

void Ranks::leave() {
  meet();
  groups_->watch.reset();
  if (groups_->on_gpu)  // NCCL warns about a group that is destroyed without a shutdown
    groups_->each_on_gpu([](const Group& group) { group->shutdown(); });
  groups_.reset();
}

bool Ranks::fail(const std::string& reason) {
  if (!groups_ || !groups_->host) return false;
  groups_->abandon();
  const bool said = groups_->last_words.leave(split(reason, '\n').front());
  if (groups_->on_gpu)  // ends the exchanges that the GPU waits for
    groups_->each_on_gpu([](const Group& group) { group->abort(); });
  return said;
}

}  // namespace octet
