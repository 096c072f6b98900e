// Starts a thread where the system may refuse one more.
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace octet {

/// A thread that runs body(), on all cores of the process even if the calling thread is bound to one (cores.h). Where
/// the system refuses it, Error(usage): "`what` did not start (Resource temporarily unavailable)", the limits that may
/// be reached, and `cure`: "thread 4 of 8", "ask for fewer threads".
std::thread start_thread(std::function<void()> body, const std::string& what, const std::string& cure);

}  // namespace octet
