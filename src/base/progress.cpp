// SPDX-License-Identifier: Apache-2.0
#include "src/base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>

#include "src/base/error.h"
#include "src/base/text.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;

Verbosity g_verbosity = Verbosity::normal;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string clock_text(double seconds) {
  const long s = std::lround(seconds);
  return s < 3600 ? fmt::format("{}:{:02}", s / 60, s % 60)
                  : fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

int terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void write_stderr(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

void set_verbosity(Verbosity verbosity) { g_verbosity = verbosity; }

void say(const std::string& line) {
  if (g_verbosity != Verbosity::quiet) write_stderr(printable_lines(line) + "\n");
}

Progress::Progress(std::string title, long total, std::string unit, long begun)
    : title_(std::move(title)),
      unit_(std::move(unit)),
      total_(std::max(total, 1L)),
      begun_(begun),
      done_(begun),
      start_(Clock::now()),
      shown_(start_),
      terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::update(long done, const std::string& detail) {
  done_ = done;
  detail_ = detail;
  // A terminal is redrawn at most ten times a second; a log file gets a line every ten seconds.
  if (g_verbosity == Verbosity::quiet || seconds_since(shown_) < (terminal_ ? 0.1 : 10.0)) return;
  shown_ = Clock::now();
  const double seconds = seconds_since(start_), rate = (done_ - begun_) / std::max(seconds, 1e-9);
  const std::string figures = fmt::format("{:3.0f} %  {:.0f} {}/s  {}  ETA {}", 100.0 * done_ / total_, rate, unit_,
                                          detail_, clock_text((total_ - done_) / std::max(rate, 1e-9)));
  if (!terminal_) return say(fmt::format("{}: {}", title_, figures));
  const int room = terminal_width() - static_cast<int>(title_.size() + figures.size()) - 6;
  const int bar = std::clamp(room, 0, 30), filled = std::clamp(static_cast<int>(bar * done_ / total_), 0, bar);
  const std::string drawn = bar > 4 ? fmt::format("[{:=<{}}{: <{}}] ", "", filled, "", bar - filled) : "";
  write_stderr(fmt::format("\r\x1b[K{} {}{}", title_, drawn, figures));
}

Progress::~Progress() {
  if (g_verbosity == Verbosity::quiet) return;
  const double seconds = seconds_since(start_);
  write_stderr(fmt::format("{}{}: {} {} in {:.1f} s ({:.0f} {}/s)  {}\n", terminal_ ? "\r\x1b[K" : "", title_,
                           done_ - begun_, unit_, seconds, (done_ - begun_) / std::max(seconds, 1e-9), unit_, detail_));
}

namespace {

std::atomic<bool> g_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // set by a signal handler

void on_signal(int) {
  if (g_interrupted.exchange(true)) ::_exit(static_cast<int>(ExitCode::interrupted));
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return g_interrupted; }

void interrupt() { g_interrupted = true; }

void forget_interrupt() { g_interrupted = false; }

void throw_if_interrupted() {
  if (interrupted()) throw Error(ExitCode::interrupted, "interrupted");
}

}  // namespace octet
