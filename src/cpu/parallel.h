// Work on several threads: the caller's parallel_for hook, or the library's own pool. Tasks are the
// workers of a call: each draws work items from a shared counter, so scratch is one slot a worker
// and the hook needs no thread numbers.
#pragma once

#include <atomic>
#include <cstdint>

namespace tilewise::cpu {

using Task = void (*)(void* context, std::int64_t index);
using ParallelFor = void (*)(void* user, std::int64_t tasks, Task task, void* context);

struct Parallel {
  ParallelFor parallel_for;
  void* user;
  std::int32_t workers;  // > 0
};

// The pool, or `hook` if it is given. threads 0 = one per core that this process may use.
Parallel make_parallel(ParallelFor hook, void* user, std::int32_t threads);

// Calls body(worker, item) for every item in [0, items), on at most parallel.workers workers;
// worker in [0, workers). Bodies must not throw.
template <class Body>
void for_each_item(const Parallel& parallel, std::int64_t items, Body&& body) {
  const std::int64_t workers = items < parallel.workers ? items : parallel.workers;
  if (workers <= 1) {
    for (std::int64_t i = 0; i < items; ++i) body(std::int64_t{0}, i);
    return;
  }
  struct Context {
    std::atomic<std::int64_t> next;
    std::int64_t items;
    Body* body;
  } context{{0}, items, &body};
  const Task task = [](void* opaque, std::int64_t worker) {
    Context& c = *static_cast<Context*>(opaque);
    for (;;) {
      const std::int64_t i = c.next.fetch_add(1, std::memory_order_relaxed);
      if (i >= c.items) return;
      (*c.body)(worker, i);
    }
  };
  parallel.parallel_for(parallel.user, workers, task, &context);
}

}  // namespace tilewise::cpu
