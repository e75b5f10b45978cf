// Waiting with a time limit and an open ear for Ctrl-C.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

namespace torch_xla {

// Called every 50 ms or so by a waiting thread; true means that the user pressed Ctrl-C. The
// bindings register one that asks Python; a plain C++ program has none. Must be thread-safe.
void SetInterruptCheck(std::function<bool()> check);
bool InterruptRequested();

// XLA_WAIT_TIMEOUT_S.
std::chrono::duration<double> WaitTimeout();

// Waits on `cv` until done() holds. Throws Interrupted on Ctrl-C, and kDeadlineExceeded with
// "waited N s for <what()>" after `limit` (no limit when it is zero).
void WaitFor(std::unique_lock<std::mutex>& lock, std::condition_variable& cv,
             const std::function<bool()>& done, const std::function<std::string()>& what,
             std::chrono::duration<double> limit = WaitTimeout());

// True in a child that was forked after this library was loaded: the runtime's threads are not
// there, so nothing of it may be used, and destructors must leave everything alone.
bool InForkedChild();
// Throws kFailedPrecondition in a forked child.
void CheckNotForked();

}  // namespace torch_xla
